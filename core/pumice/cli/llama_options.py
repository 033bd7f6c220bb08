"""llama-cli's command line in commands that generate text."""

from __future__ import annotations

from dataclasses import replace

import click

from pumice.cli.llama_arguments import LlamaOptions
from pumice.cli.llama_names import MODELS, TRANSLATIONS, Translation, by_name
from pumice.cli.options import TextCommand

_FLAGS = {
    "the terminal": "--simple-io -mli --multiline-input --nowordwrap",
    "logs": "--show-timings --no-show-timings --log-jsonl",
}
_VALUES = {
    "the terminal": "-co --color",
    "logs": "-ptc --print-token-count",
    "the computation": "-np --parallel",
    "chat templates": "--reasoning-format",
}
_CACHE = "--cache-disk DIR keeps what was computed of prompts"
_UNDONE = {_CACHE: "--prompt-cache-all --prompt-cache-ro"}
_UNDONE_VALUES = {
    _CACHE: "--prompt-cache",
    "the command ends with its text; `pumice serve` keeps models loaded": "--keepalive",
}
_REFUSED = {
    "name the file's quantization: -m hf.co/owner/repository:Q4_K_M": "-hff --hf-file",
    "give the address as the model: -m https://...": "-mu --model-url",
    "name the model: -m hf.co/owner/repository:Q4_K_M": MODELS,
    "set the environment variable HF_TOKEN: other users can see command lines": "-hft --hf-token",
    "prompts are text in UTF-8; read the file with -f FILE": "-bf --binary-file",
    "`pumice tokenize -p TEXT` shows the tokens of a prompt": "--verbose-prompt",
    "redirect standard output: > FILE": "-o --output --output-file",
    "the command computes by itself; docs/clients.md lists clients of servers": "--server-base",
    "write the texts around messages in a chat template: --chat-template-file FILE": (
        "--in-prefix --in-suffix --in-prefix-bos"
    ),
    "for a longer context use --rope-scaling yarn or --context-shift": "-gan --grp-attn-n -gaw --grp-attn-w",
    "use -j SCHEMA, or -j {} for any JSON": "--format --schema",
    "use --image FILE, --audio FILE or --video FILE": "-a --attachment --at",
    "use --reasoning on, off or auto": "--think --hidethinking",
}
"""Options that would change the text, also of Ollama and llm, by what to do instead."""

_CHAT = "-cnv --conversation -i --interactive -if --interactive-first"
_RUN = "-no-cnv --no-conversation"
_IMPLIED = {
    "chat": f"{_CHAT} --display-prompt --no-display-prompt --no-context-shift",
    "run": f"{_RUN} -st --single-turn --no-context-shift",
}
_OF_OTHERS = {
    "run": {"`pumice run` continues a text; `pumice chat` holds a conversation": _CHAT},
    "chat": {"`pumice chat` applies the chat template; `pumice run` continues a text without one": _RUN},
}
"""Options for what another command does."""

_HUB = Translation(1, lambda repository: ["-m", f"hf.co/{repository}"])
_ALL = replace(
    LlamaOptions.of_program(_FLAGS, _VALUES, _UNDONE, _UNDONE_VALUES, _REFUSED),
    translations={**TRANSLATIONS, **dict.fromkeys(["-hf", "-hfr", "--hf-repo"], _HUB)},
)
OPTIONS = {
    command: replace(_ALL, refused={**_ALL.refused, **by_name(others)}, implied=frozenset(_IMPLIED[command].split()))
    for command, others in _OF_OTHERS.items()
}
"""llama-cli's options that ``run`` and ``chat`` do not have."""


class LlamaCommand(TextCommand):
    """A command that takes llama-cli's command line: options without a meaning here are left out with a warning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        assert self.name
        return super().parse_args(ctx, OPTIONS[self.name].arguments_for(args, self))
