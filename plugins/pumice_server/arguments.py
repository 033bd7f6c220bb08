"""llama-server's options: those that mean something here are options of ``pumice serve``, these do not."""

from __future__ import annotations

from collections.abc import Sequence

import click

IGNORED = {
    "--jinja": 0,
    "--no-webui": 0,
    "--no-ui": 0,
    "--metrics": 0,
    "--slots": 0,
    "--no-slots": 0,
    "--props": 0,
    "--mlock": 0,
    "--no-mmap": 0,
    "--mmap": 0,
    "--cont-batching": 0,
    "-cb": 0,
    "--no-cont-batching": 0,
    "--no-warmup": 0,
    "--warmup": 0,
    "--cache-prompt": 0,
    "--kv-unified": 0,
    "-kvu": 0,
    "--log-disable": 0,
    "--log-colors": 1,
    "--log-prefix": 0,
    "--log-timestamps": 0,
    "--log-verbosity": 1,
    "-lv": 1,
    "-ub": 1,
    "--ubatch-size": 1,
    "-tb": 1,
    "--threads-batch": 1,
    "--threads-http": 1,
    "-fa": 1,
    "--flash-attn": 1,
    "--cache-reuse": 1,
    "--prio": 1,
    "--poll": 1,
    "--numa": 1,
    "-sm": 1,
    "--split-mode": 1,
    "-fit": 1,
    "--fit": 1,
}
"""Options without a meaning here, and how many values each has: they are left out with a warning."""

REFUSED = {
    "--embedding": "embeddings are not served yet",
    "--embeddings": "embeddings are not served yet",
    "--reranking": "reranking is not served yet",
    "--rerank": "reranking is not served yet",
    "--mmproj": "models see no images yet",
    "--lora": "LoRA adapters are not supported yet",
    "--lora-scaled": "LoRA adapters are not supported yet",
    "--control-vector": "control vectors are not supported yet",
    "--grammar": "give it with each request, as `grammar`",
    "--grammar-file": "give it with each request, as `grammar`",
    "--json-schema": "give it with each request, as `json_schema` or `response_format`",
    "-j": "give it with each request, as `json_schema` or `response_format`",
    "-md": "draft models are not supported yet",
    "--model-draft": "draft models are not supported yet",
    "-hff": "name the file as in hf.co/owner/repository/file.gguf",
    "--hf-file": "name the file as in hf.co/owner/repository/file.gguf",
}
"""Options that would change what is served, and why they cannot be had."""


def leave_out(arguments: Sequence[str], known: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without ignored options, and those options. ``known``: the command's own options that take a value.

    Raises UsageError for a refused one.
    """
    kept: list[str] = []
    ignored: list[str] = []
    coming = iter(arguments)
    for argument in coming:
        name, equals, _ = argument.partition("=")
        if name in REFUSED:
            raise click.UsageError(f"{name}: {REFUSED[name]}")
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


class ServeCommand(click.Command):
    """A command that takes llama-server's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = [
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        ]
        kept, ignored = leave_out(args, valued)
        for name in ignored:
            click.echo(f"warning: {name} has no meaning for pumice serve, and is ignored", err=True)
        return super().parse_args(ctx, kept)
