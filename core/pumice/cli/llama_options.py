"""Options of llama.cpp's programs that have no meaning here, or another form, in commands that generate text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from pumice.cli.options import TEXT
from pumice.cli.vocabulary import GroupedCommand

FLAGS = """
    --jinja --perf --no-perf -e --escape --no-escape --swa-full --repack -nr --no-repack --no-host --check-tensors
    --warmup --no-warmup -bs --backend-sampling
    --log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps
    --mmproj-auto --mmproj-offload --no-mmproj-offload
"""
VALUES = """
    -ub --ubatch-size -tb --threads-batch --keep -fa --flash-attn -lm --load-mode -lzm --lazy-mode
    -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch
    --cpu-strict-batch --prio-batch --poll-batch -dt --defrag-thold
    --log-file --log-colors -lv --verbosity --log-verbosity
"""
"""Names of options that change no text, without and with a value, also those of llama-server."""

_FLAGS = "--simple-io -co --no-display-prompt --single-turn -st -mli --multiline-input --show-timings --no-show-timings"
_SWITCHES = ("-fa", "--flash-attn", "-co", "--color", "--log-colors")
"""Options whose value was added later, so that it may be missing."""
_STATES = ("on", "off", "auto")

_IGNORED = {**dict.fromkeys([*FLAGS.split(), *_FLAGS.split()], 0), **dict.fromkeys([*VALUES.split(), "--color"], 1)}
_REPOSITORY = ("-hf", "-hfr", "--hf-repo")
_CONVERSATION = dict.fromkeys(("-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"), "chat")
_CONTINUATION = dict.fromkeys(("-no-cnv", "--no-conversation"), "run")
_COMMANDS: Mapping[str, str] = {**_CONVERSATION, **_CONTINUATION}
"""Options that choose between a chat and a continued text, and the command that does so here."""
_REFUSED = {
    **dict.fromkeys(("-hff", "--hf-file"), "name the file's quantization: -m hf.co/owner/repository:Q4_K_M"),
    **dict.fromkeys(("-mu", "--model-url"), "give the address as the model: -m https://..."),
    "--version": "it is an option of its own: pumice --version",
    "--no-jinja": "templates are always rendered as Jinja",
    "--rpc": "no other machine computes with this one",
}


class LlamaCommand(GroupedCommand):
    """A command that takes llama-cli's command line: options without a meaning here are left out with a warning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, click.Option)]
        own: dict[str, bool] = {name: not param.is_flag for param in options for name in param.opts}
        kept, ignored = leave_out(args, self.name or "", own)
        for name in ignored:
            click.echo(f"warning: {name} has no meaning for pumice {self.name}, and is ignored", err=True)
        ctx.meta[TEXT] = None
        rest = super().parse_args(ctx, kept)
        if ctx.meta[TEXT] is not None:
            _, text = (param for param in self.params if isinstance(param, click.Argument))
            assert text.name
            if ctx.params[text.name] is not None:
                raise click.UsageError("two models: one as MODEL and one with -m; give only one", ctx)
            ctx.params[text.name] = ctx.meta[TEXT]
        return rest


def leave_out(arguments: Sequence[str], command: str, own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the arguments without ignored options, and the ignored options.

    Args:
        arguments: Command line after the name of the command.
        command: Its name, ``run`` or ``chat``.
        own: Names of the command's own options, and whether each takes a value.

    Raises:
        click.UsageError: An option means something that is done in another way.
    """
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
        elif name in _REPOSITORY:
            repository = value if equals else rest.pop(0) if rest else ""
            kept += ["-m", f"hf.co/{repository}"]
        elif name in _REFUSED:
            raise click.UsageError(f"{name}: {_REFUSED[name]}")
        elif _COMMANDS.get(name, command) != command:
            raise click.UsageError(f"{name}: {_OTHER[command]}")
        elif name in _IGNORED or name in _COMMANDS:
            ignored.append(name)
            has_value = bool(rest) and (rest[0] in _STATES if name in _SWITCHES else bool(_IGNORED.get(name)))
            if has_value and not equals:
                rest.pop(0)
        else:
            kept.append(argument)
    return kept, ignored


_OTHER = {
    "run": "`pumice run` continues a text; `pumice chat` holds a conversation",
    "chat": "`pumice chat` applies the chat template; `pumice run` continues a text without one",
}
