"""llama-cli's command line in commands that generate text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from pumice.cli.llama_names import (
    FLAGS,
    MODELS,
    NOT_DONE,
    NOT_DONE_VALUES,
    REASONS,
    TRANSLATED,
    TRANSLATIONS,
    VALUES,
    by_name,
)
from pumice.cli.options import TextCommand

_FLAGS = "--simple-io -mli --multiline-input --show-timings --no-show-timings --log-jsonl --nowordwrap"
_VALUES = "-co --color -np --parallel -ptc --print-token-count --reasoning-format"
_SWITCHES = ("-fa", "--flash-attn", "-co", "--color", "--log-colors")
"""Options whose value was added later, so that it may be missing."""
_STATES = ("on", "off", "auto")

_CACHE = "--cache-disk DIR keeps what was computed of prompts"
_UNDONE = {**NOT_DONE, _CACHE: "--prompt-cache-all --prompt-cache-ro"}
_UNDONE_VALUES = {
    **NOT_DONE_VALUES,
    _CACHE: "--prompt-cache",
    "`pumice serve` keeps models loaded": "--keepalive",
}
UNDONE = {**by_name(_UNDONE), **by_name(_UNDONE_VALUES)}
"""Options of what is not done here, and why: texts are the same without, so that a warning is enough."""

IGNORED = {
    **dict.fromkeys([*FLAGS.split(), *_FLAGS.split(), *by_name(_UNDONE)], 0),
    **dict.fromkeys([*VALUES.split(), *_VALUES.split(), *by_name(_UNDONE_VALUES)], 1),
}
"""Options without a meaning here, and how many values each has: they are left out with a warning."""

REPOSITORY = ("-hf", "-hfr", "--hf-repo")
"""Options of a repository of the Hugging Face Hub, which is a name of a model here."""

_CHAT = "-cnv --conversation -i --interactive -if --interactive-first"
_RUN = "-no-cnv --no-conversation"
ANYWAY = {
    "chat": f"{_CHAT} --display-prompt --no-display-prompt --no-context-shift".split(),
    "run": f"{_RUN} -st --single-turn --no-context-shift".split(),
}
"""Options that ask for what the command does anyway."""

OTHERS = {
    "run": by_name({"`pumice run` continues a text; `pumice chat` holds a conversation": _CHAT}),
    "chat": by_name({"`pumice chat` applies the chat template; `pumice run` continues a text without one": _RUN}),
}
"""Options that ask for what another command does."""

_REASONS = {
    "name the file's quantization: -m hf.co/owner/repository:Q4_K_M": "-hff --hf-file",
    "give the address as the model: -m https://...": "-mu --model-url",
    "name the model: -m hf.co/owner/repository:Q4_K_M": MODELS,
    "the environment variable HF_TOKEN has the token, which other users see on a command line": "-hft --hf-token",
    "a prompt is text in UTF-8, which -f FILE reads": "-bf --binary-file",
    "`pumice tokenize -p TEXT` shows the tokens of a prompt": "--verbose-prompt",
    "the text goes to standard output: redirect it, with > FILE": "-o --output --output-file",
    "the model computes in this process; clients of a server are in docs/clients.md": "--server-base",
    "the chat template has what stands around messages: --chat-template": "--in-prefix --in-suffix --in-prefix-bos",
    "a longer context is --rope-scaling yarn, or --context-shift": "-gan --grp-attn-n -gaw --grp-attn-w",
    "the schema of a JSON text is -j SCHEMA, and -j {} any JSON": "--format --schema",
    "the image, sound or video is --image FILE, --audio FILE or --video FILE": "-a --attachment --at",
    "the reasoning is --reasoning on, off or auto": "--think --hidethinking",
}
REFUSED = by_name({**REASONS, **_REASONS})
"""Options that would change the text, also of Ollama and llm, with what to do instead."""


class LlamaCommand(TextCommand):
    """A command that takes llama-cli's command line: options without a meaning here are left out with a warning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, click.Option)]
        own = {name: not param.is_flag for param in options for name in (*param.opts, *param.secondary_opts)}
        kept, ignored = leave_out(args, self.name or "", own)
        for name in ignored:
            why = "is ignored: " + UNDONE[name] if name in UNDONE else _meaningless(self.name)
            click.echo(f"warning: {name} {why}", err=True)
        return super().parse_args(ctx, kept)


def _meaningless(command: str | None) -> str:
    return f"has no meaning for pumice {command}, and is ignored"


def leave_out(arguments: Sequence[str], command: str, own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the arguments without ignored options, and the ignored options.

    Args:
        arguments: Command line after the name of the command.
        command: Its name, ``run`` or ``chat``.
        own: Names of the command's own options, and whether each takes a value.

    Raises:
        click.UsageError: An option means something that is done in another way.
    """
    refused = {**REFUSED, **OTHERS[command]}
    kept: list[str] = []
    ignored: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *rest]
            break
        if name in own:
            kept.append(argument)
            if own[name] and not equals and rest:
                kept.append(rest.pop(0))
        elif name in REPOSITORY:
            kept += ["-m", f"hf.co/{_value(name, equals, value, rest)}"]
        elif name in TRANSLATIONS:
            kept += TRANSLATIONS[name](_value(name, equals, value, rest) if TRANSLATED[name] else "")
        elif name in refused:
            raise click.UsageError(f"{name}: {refused[name]}")
        elif name in ANYWAY[command]:
            continue
        elif name in IGNORED:
            ignored.append(name)
            has_value = bool(rest) and (rest[0] in _STATES if name in _SWITCHES else bool(IGNORED[name]))
            if has_value and not equals:
                rest.pop(0)
        else:
            kept.append(argument)
    return kept, ignored


def _value(name: str, equals: str, value: str, rest: list[str]) -> str:
    """Return the value of an option, which may be the next argument. Raises UsageError without one."""
    if equals:
        return value
    if not rest:
        raise click.UsageError(f"option {name!r} requires an argument")
    return rest.pop(0)
