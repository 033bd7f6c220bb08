"""llama-server's command line at ``pumice serve``."""

from __future__ import annotations

import os

import click

from pumice.cli.llama_arguments import LlamaOptions
from pumice.cli.llama_names import MODELS
from pumice.cli.vocabulary import GroupedCommand
from pumice_server.command.environment import PREFIX, arguments_of, option_of

_FLAGS = {
    "the computation": """
        -cb --cont-batching -nocb --no-cont-batching --cache-prompt --cache-idle-slots --no-cache-idle-slots
        --prefill-assistant --embedding --embeddings --rerank --reranking -e --escape --no-escape
    """,
    "the server": """
        --props --models-autoload --no-cors-credentials --no-ui-mcp-proxy --no-webui-mcp-proxy -no-ag --no-agent
        --reuse-port
    """,
}
_VALUES = {
    "the computation": """
        --kv-unified-per-slot -cms --checkpoint-min-step --cache-reuse -sps --slot-prompt-similarity
        --mtmd-batch-max-tokens -lcs --lookup-cache-static -lcd --lookup-cache-dynamic
    """,
    "the server": """
        --threads-http --sse-ping-interval --cors-methods --cors-headers
        --ui-config --webui-config --ui-config-file --webui-config-file
    """,
}
_TOOLS = "tools are those of MCP servers that --allow-tools names"
_UNDONE = {
    "requests are authorized by API keys, not by cookies": "--cors-credentials",
    _TOOLS: "-ag --agent --ui-mcp-proxy --webui-mcp-proxy",
}
_UNDONE_VALUES = {_TOOLS: "--tools --tools-runtime --mcp-servers-config --mcp-servers-json"}
_REFUSED = {
    "send images with the requests": "--media-path",
    "give it with each request, as `logit_bias`": "-l --logit-bias",
    "give it with each request, as `cache_prompt: false`": "--no-cache-prompt",
    "give it with each request, as `embd_normalize`": "--embd-normalize",
    "give it with each request, as `continue_final_message: false`": "--no-prefill-assistant",
    "name the model: pumice serve hf.co/owner/repository:Q4_K_M": (
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
        f"--fim-qwen-30b-default --fim-qwen-7b-spec --fim-qwen-14b-spec {MODELS}"
    ),
    "several models always load on first use; leave the option out": "--no-models-autoload",
    "the prefix always comes first; leave the option out": "--spm-infill",
    "let a reverse proxy add the prefix": "--api-prefix",
    "the page is part of the package; serve other files by another server": "--path",
}
"""Options that would change the service, by what to do instead."""

OPTIONS = LlamaOptions.of_program(_FLAGS, _VALUES, _UNDONE, _UNDONE_VALUES, _REFUSED)
"""llama-server's options that ``serve`` does not have."""


def _with_hyphens(argument: str) -> str:
    """Return an option with hyphens for underscores, as llama-server reads it."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


class ServeCommand(GroupedCommand):
    """A command with llama-server's command line and environment variables."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [_with_hyphens(argument) for argument in args]
        variables = arguments_of(os.environ, args, self.params, OPTIONS.ignored, OPTIONS.refused)
        try:
            return super().parse_args(ctx, OPTIONS.arguments_for([*variables, *args], self))
        except click.BadParameter as error:
            names = error.param.opts if error.param else ()
            sources = [name for name in os.environ if name.startswith(PREFIX) and option_of(name) in names]
            if sources and any(argument.startswith(option_of(sources[0])) for argument in variables):
                message = f"{error.message.rstrip('.')} (from {sources[0]})"
                raise click.BadParameter(message, ctx, error.param) from None
            raise
