"""llama-server's options: those that mean something here are options of ``pumice serve``, these do not."""

from __future__ import annotations

import os
from collections.abc import Sequence

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
from pumice.cli.vocabulary import GroupedCommand
from pumice_server.environment import arguments_of

_FLAGS = f"""{FLAGS}
    -e --escape --no-escape
    --props --models-autoload
    -cb --cont-batching -nocb --no-cont-batching
    --cache-prompt --cache-idle-slots --no-cache-idle-slots
    --prefill-assistant
    --no-cors-credentials --no-ui-mcp-proxy --no-webui-mcp-proxy -no-ag --no-agent --reuse-port
    --embedding --embeddings --rerank --reranking
"""
_VALUES = f"""{VALUES}
    --threads-http
    --kv-unified-per-slot -cms --checkpoint-min-step
    --cache-reuse -sps --slot-prompt-similarity --sse-ping-interval
    --mtmd-batch-max-tokens
    --cors-methods --cors-headers --ui-config --webui-config --ui-config-file --webui-config-file
    -lcs --lookup-cache-static -lcd --lookup-cache-dynamic
"""

_UNDONE = {
    **NOT_DONE,
    "cookies and the like are asked for by nobody": "--cors-credentials",
    "tools are those of MCP servers that --allow-tools names": "-ag --agent --ui-mcp-proxy --webui-mcp-proxy",
}
_UNDONE_VALUES = {
    "tools are those of MCP servers that --allow-tools names": (
        "--tools --tools-runtime --mcp-servers-config --mcp-servers-json"
    ),
    **NOT_DONE_VALUES,
}
UNDONE = {**by_name(_UNDONE), **by_name(_UNDONE_VALUES)}
"""Options of what is not done here, and why: answers are the same without, so that a warning is enough."""

IGNORED = {
    **dict.fromkeys([*_FLAGS.split(), *by_name(_UNDONE)], 0),
    **dict.fromkeys([*_VALUES.split(), *by_name(_UNDONE_VALUES)], 1),
}
"""Options without a meaning here, and how many values each has: they are left out with a warning."""

_REASONS = {
    "requests bring images themselves": "--media-path",
    "give it with each request, as `logit_bias`": "-l --logit-bias",
    "give it with each request, as `cache_prompt: false`": "--no-cache-prompt",
    "give it with each request, as `embd_normalize`": "--embd-normalize",
    "give it with each request, as `continue_final_message: false`": "--no-prefill-assistant",
    "name the model: pumice serve hf.co/owner/repository:Q4_K_M": (
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
        f"--fim-qwen-30b-default --fim-qwen-7b-spec --fim-qwen-14b-spec {MODELS}"
    ),
    "several models are always loaded when they are asked for": "--no-models-autoload",
    "the prefix is always first": "--spm-infill",
    "a reverse proxy can add a prefix": "--api-prefix",
    "the page is part of the package": "--path",
}
REFUSED = by_name({**REASONS, **_REASONS})
"""Options that would change the service, with the reason why each is refused."""


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
            kept += TRANSLATIONS[name](value)
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
