"""llama-server's options: those that mean something here are options of ``pumice serve``, these do not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence

import click

from pumice.cli.llama_options import FLAGS, VALUES
from pumice.cli.vocabulary import GroupedCommand
from pumice_server.environment import arguments_of

logger = logging.getLogger("pumice")

_FLAGS = f"""{FLAGS}
    --props --models-autoload
    -cb --cont-batching -nocb --no-cont-batching
    --cache-prompt --cache-idle-slots --no-cache-idle-slots
    --no-log-jsonl
    --prefill-assistant --no-skip-chat-parsing --reasoning-preserve --no-reasoning-preserve
    --no-cors-credentials --no-ui-mcp-proxy --no-webui-mcp-proxy -no-ag --no-agent --reuse-port
    --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling --no-spec-draft-backend-sampling
    --embedding --embeddings --rerank --reranking
"""
_VALUES = f"""{VALUES}
    --threads-http
    --kv-unified-per-slot -ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step
    --cache-reuse -sps --slot-prompt-similarity --sse-ping-interval
    --mtmd-batch-max-tokens -mmdev --mmproj-device --video-fps
    --video-timestamp-interval --video-ffmpeg-dir
    --cors-methods --cors-headers --ui-config --webui-config --ui-config-file --webui-config-file
    -lcs --lookup-cache-static -lcd --lookup-cache-dynamic
    --spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft
    --spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft
    --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft
    --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft
    --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
    --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft
    --spec-draft-override-tensor -otd --override-tensor-draft
    --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft
    --spec-draft-p-split --draft-p-split --spec-synth-len --spec-synth-rates --spec-draft-device -devd --device-draft
    --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
    --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits
    --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits
    --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits
"""
_PROPOSERS = {
    "none": "off",
    "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k",
    "ngram-map-k4v": "ngram-map-k4v",
    "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
    "draft-simple": "draft",
    "draft-eagle3": "draft",
    "draft-dflash": "draft",
    "draft-dspark": "draft",
    "draft-mtp": "mtp",
}
"""Values of ``--spec-type``, and the proposers that stand for them here: texts are the same whichever it is."""

_UNDONE = {
    "templates are always rendered as Jinja": "--no-jinja",
    "cookies and the like are asked for by nobody": "--cors-credentials",
    "tools are those of MCP servers that --allow-tools names": "-ag --agent --ui-mcp-proxy --webui-mcp-proxy",
}
_UNDONE_VALUES = {
    "tools are those of MCP servers that --allow-tools names": (
        "--tools --tools-runtime --mcp-servers-config --mcp-servers-json"
    ),
    "a draft model is a file here; download it, and give it as --draft": ("--spec-draft-hf -hfd -hfrd --hf-repo-draft"),
    "texts of prompts are written nowhere": "--log-prompts-dir",
}
UNDONE = {
    name: reason for table in (_UNDONE, _UNDONE_VALUES) for reason, names in table.items() for name in names.split()
}
"""Options of what is not done here, and why: answers are the same without, so that a warning is enough."""

IGNORED = {
    **dict.fromkeys([*_FLAGS.split(), *" ".join(_UNDONE.values()).split()], 0),
    **dict.fromkeys([*_VALUES.split(), *" ".join(_UNDONE_VALUES.values()).split()], 1),
}
"""Options without a meaning here, and how many values each has: they are left out with a warning."""

_REASONS = {
    "a projector is a file here; download it, and give it as --mmproj": "-mmu --mmproj-url",
    "requests bring images themselves": "--media-path",
    "give it with each request, as `logit_bias`": "-l --logit-bias",
    "give it with each request, as `cache_prompt: false`": "--no-cache-prompt",
    "give it with each request, as `embd_normalize`": "--embd-normalize",
    "special tokens are no text of an answer": "-sp --special",
    "give it with each request, as `continue_final_message: false`": "--no-prefill-assistant",
    "llama-server has removed it": (
        "--draft-n --draft-n-min --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits"
    ),
    "no other machine computes with this one": "--rpc",
    "models come from files, the Hugging Face Hub, or a URL": "-dr --docker-repo",
    "name the model: pumice serve hf.co/owner/repository:Q4_K_M": (
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
        "--fim-qwen-30b-default --fim-qwen-7b-spec --fim-qwen-14b-spec "
        "--gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default "
        "--vision-gemma-12b-default"
    ),
    "several models are always loaded when they are asked for": "--no-models-autoload",
    "answers are always parsed": "--skip-chat-parsing",
    "the prefix is always first": "--spm-infill",
    "a reverse proxy can add a prefix": "--api-prefix",
    "the page is part of the package": "--path",
    "it is a command of its own: pumice list, pumice devices, pumice --version": (
        "-cl --cache-list --version --completion-bash"
    ),
    "see --help": "--usage",
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Options that would change the service, with the reason why each is refused."""


def _proposers(types: str) -> str:
    """Return the ``--speculate`` value for a ``--spec-type`` value; types that draft otherwise are left out."""
    proposers = [_PROPOSERS[name] for name in types.split(",") if name in _PROPOSERS]
    others = [name for name in types.split(",") if name not in _PROPOSERS]
    if wrong := [name for name in others if not name.startswith("draft-")]:
        raise click.UsageError(f"--spec-type: unknown type {wrong[0]!r} (known: {', '.join(_PROPOSERS)})")
    if others:
        logger.warning("--spec-type: %s is left out: it names no proposer of Pumice", ", ".join(others))
    return ",".join(dict.fromkeys(name for name in proposers if name != "off")) or "off"


_TRANSLATIONS: Mapping[str, Callable[[str], Sequence[str]]] = {
    "--spec-type": lambda types: ["--speculate", _proposers(types)],
    "--spec-default": lambda _: ["--speculate", _proposers("ngram-mod")],
    **dict.fromkeys(["--no-mmproj", "--no-mmproj-auto"], lambda _: ["--mmproj", "off"]),
}
TRANSLATED = {name: int(name == "--spec-type") for name in _TRANSLATIONS}
"""Options that are others here, and how many values each has."""


def leave_out(arguments: Sequence[str], known: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without ignored options, and the ignored options.

    ``known``: the command's own options that take a value. Raises UsageError for a refused option.
    """
    kept: list[str] = []
    ignored: list[str] = []
    coming = iter(arguments)
    for argument in coming:
        name, equals, _ = argument.partition("=")
        if name in REFUSED:
            raise click.UsageError(f"{name}: {REFUSED[name]}")
        if name in TRANSLATED:
            value = argument[len(name) + 1 :] or (next(coming, "") if TRANSLATED[name] else "")
            kept += _TRANSLATIONS[name](value)
            continue
        if name in IGNORED:
            ignored.append(name)
            for _ in range(0 if equals else IGNORED[name]):
                next(coming, None)
            continue
        kept.append(argument)
        if argument == "--":
            kept += coming
        elif argument in known:
            kept += [value for value in (next(coming, None),) if value is not None]
    return kept, ignored


def _with_hyphens(argument: str) -> str:
    """An option whose name has underscores, which llama-server takes for hyphens."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


class ServeCommand(GroupedCommand):
    """A command that takes llama-server's command line, and its environment variables."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [_with_hyphens(argument) for argument in args]
        args = [*arguments_of(os.environ, args, self.params, IGNORED, REFUSED), *args]
        valued = [
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        ]
        kept, ignored = leave_out(args, valued)
        for name in ignored:
            why = f"is ignored: {UNDONE[name]}" if name in UNDONE else "has no meaning for pumice serve, and is ignored"
            click.echo(f"warning: {name} {why}", err=True)
        return super().parse_args(ctx, kept)
