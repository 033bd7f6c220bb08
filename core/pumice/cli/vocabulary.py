"""Options of the command line: the same spelling and the same heading of ``--help`` in all commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from pumice.cli.output import echo
from pumice.errors import ConfigError
from pumice.machine import size_in
from pumice.options import CHAT, ENGINE
from pumice.options.option import Option as Definition

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

GROUPS = (
    "Model",
    "Prompt",
    "Output",
    "Server",
    "Security",
    "Context",
    "Backend",
    "Generation",
    "Sampling",
    "Chat",
    "Tools",
    "Structured output",
    "Reasoning",
    "Penalties",
    "Diffusion",
    "Adapters",
    "Embeddings",
    "Cluster",
    "Options",
)
"""Headings of ``--help``, in order."""

_ALL = "pumice.help_all"


class CommandOption(click.Option):
    """An option under a heading of ``--help``. A value other than a text must not be empty, a number must be finite.

    Args:
        aliases: Accepted spellings that help does not show.
        group: Heading, one of ``GROUPS``.
        advanced: True to show the option with ``--help-all`` only.
    """

    def __init__(
        self,
        param_decls: Sequence[str] | None = None,
        *,
        aliases: Sequence[str] = (),
        group: str = "Options",
        advanced: bool = False,
        **attributes: Any,
    ) -> None:
        default = attributes.get("default")
        is_told = isinstance(default, bool) or "[default" in (attributes.get("help") or "")
        attributes.setdefault("show_default", default not in (None, "") and not is_told)
        super().__init__([*(param_decls or ()), *aliases], **attributes)
        if isinstance(self.type, click.IntRange | click.FloatRange):  # errors name it: "is not a valid float range"
            is_whole = isinstance(self.type, click.IntRange)
            self.type.name = "integer" if is_whole else "number"
            self.metavar = self.metavar or ("N" if is_whole else "X")
        self.aliases = {name for names in aliases for name in names.split("/")}
        self.group = group
        self.advanced = advanced

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        result = super().type_cast_value(ctx, value)
        for number in result if isinstance(result, tuple) else (result,):
            if isinstance(number, float) and not math.isfinite(number):
                raise click.BadParameter(f"{number} is not a finite number", ctx, self)
        return result

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value of the command line, after its type and callback.

        Raises BadParameter for blanks and commas alone, and for another option, where the value is no text.
        """
        result = super().process_value(ctx, value)
        if self.metavar not in (None, "TEXT") and not self.metavar.startswith("["):
            for text in value if isinstance(value, tuple | list) else [value]:
                if isinstance(text, str) and (not text.strip(" ,\t\n") or _is_option(text, ctx)):
                    raise click.BadParameter(f"expected {self.metavar}, not {text!r:.60}", ctx, self)
        return result

    @property
    def shown(self) -> list[str]:
        """Return the spellings that ``--help`` shows, without aliases."""
        return [name for name in self.opts if name not in self.aliases]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return self._without_aliases(lambda: super(CommandOption, self).get_help_record(ctx))

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return self._without_aliases(lambda: super(CommandOption, self).get_error_hint(ctx))

    def _without_aliases(self, call: Callable[[], Any]) -> Any:
        every, secondary = self.opts, self.secondary_opts
        self.opts = self.shown
        self.secondary_opts = [name for name in secondary if name not in self.aliases]
        try:
            return call()
        finally:
            self.opts, self.secondary_opts = every, secondary


class GroupedCommand(click.Command):
    """A command with its options under headings: the common ones with ``--help``, all with ``--help-all``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        arguments = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = _near(error.option_name, self.get_params(ctx))
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None
        except click.BadParameter as error:
            options = [name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
            if name := _misread_option(error.param, arguments):
                raise click.NoSuchOption(name, possibilities=get_close_matches(name, options), ctx=ctx) from None
            if pair := _option_as_value(error.param, arguments, options):
                name, value = pair
                message = f"option {name!r} lacks its value: {value!r} is another option"
                raise click.BadOptionUsage(name, message, ctx=ctx) from None
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        return [*params, _HELP_ALL] if any(getattr(param, "advanced", False) for param in params) else params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = bool(ctx.meta.get(_ALL))
        params = [param for param in self.get_params(ctx) if everything or not getattr(param, "advanced", False)]
        for group in GROUPS:
            members = (
                param
                for param in params
                if isinstance(param, click.Option) and getattr(param, "group", "Options") == group
            )
            records = [record for param in members if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType  # not generic before click 8.4


class SizeType(_FloatType):
    """A size of memory: a number in ``unit``, or a number with a unit of its own, such as 12GiB.

    The value is a number in ``unit``, rounded down if ``whole``.
    """

    name = "size"

    def __init__(self, unit: str, whole: bool = False) -> None:
        self.unit, self.whole = unit, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            size = size_in(value, self.unit)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        if size < 0:
            self.fail(f"{value} is negative; give a size of at least 0", param, ctx)
        return math.floor(size) if self.whole else size


def option(*names: str, **attributes: Any) -> Decorator:
    """Return a decorator that adds a ``CommandOption``."""
    return click.option(*names, cls=CommandOption, **attributes)


def defined(definition: Definition, **attributes: Any) -> Decorator:
    """Return a decorator that adds a defined option; ``attributes`` override the definition."""
    names, aliases = spellings(definition)
    attributes = {**_typed(definition), "group": _group(definition), **attributes}
    attributes.setdefault("help", _help(definition))
    return option(*names, definition.name, aliases=aliases, **attributes)


def spellings(definition: Definition) -> tuple[list[str], list[str]]:
    """Return the spellings that help shows, at most a short and a long one, and the others."""
    short = [flag for flag in definition.flags if not flag.startswith("--")][:1]
    long = [flag for flag in definition.flags if flag.startswith("--")][:1]
    return [*short, *long], [flag for flag in definition.flags if flag not in (*short, *long)]


def _is_option(text: str, ctx: click.Context) -> bool:
    """Return True for the name of an option of the command."""
    params = ctx.command.get_params(ctx) if text.startswith("-") else []
    return any(text in (*param.opts, *param.secondary_opts) for param in params)


def _near(name: str, params: Sequence[click.Parameter]) -> list[str]:
    """Return at most three options for an unknown one: those that it begins, else those whose letters are alike."""
    spelt = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
    begun = sorted((other for other in spelt if other.startswith(name) and name.startswith("--")), key=len)
    close = begun or get_close_matches(name, spelt, n=3)
    main = [spelt[other].opts[-1] if other not in getattr(spelt[other], "shown", [other]) else other for other in close]
    return list(dict.fromkeys(main))[:3]


def _misread_option(param: click.Parameter | None, args: Sequence[str]) -> str | None:
    """Return the unknown option, such as ``-tb``, that was read as a short option with the value ``b``; None without.

    ``param``: parameter whose value is not valid.
    """
    shorts = [name for name in param.opts if len(name) == 2] if param else []
    for arg in args:
        if len(arg) > 2 and arg[:2] in shorts and arg[2].isalpha():
            return arg.partition("=")[0]
    return None


def _option_as_value(
    param: click.Parameter | None, args: Sequence[str], options: Collection[str]
) -> tuple[str, str] | None:
    """Return a name of ``param`` and the option after it, which was read as its value; None without.

    Args:
        param: Parameter whose value is not valid.
        args: Arguments of the command.
        options: Names of all options of the command.
    """
    names = param.opts if param else []
    return next(((name, value) for name, value in pairwise(args) if name in names and value in options), None)


def with_options(command: Callable[..., Any], added: Sequence[Decorator]) -> Callable[..., Any]:
    """Add options to a command, in the order in which its help lists them."""
    for add in reversed(added):
        command = add(command)
    return command


def every_option(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Option]]:
    """Yield the options of a command and its subcommands, each with the path of its command."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None:
                yield from every_option(child, click.Context(child, ctx, name))
    yield from ((ctx.command_path, param) for param in command.params if isinstance(param, click.Option))


def _group(definition: Definition) -> str:
    return {"Sandbox": "Security", "Scheduling": "Context", "Request": "Generation"}.get(
        definition.group, definition.group
    )


def _help(definition: Definition) -> str:
    """Return the meaning of an option, in which other options are spelt as on the command line, and its default."""
    default = definition.default
    shown = isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != ""
    meaning = re.sub(r"[a-z]+(?:_[a-z]+)+", lambda name: _on_command_line(name[0]), definition.meaning)
    return f"{meaning}  [default: {default}]" if shown else meaning


def _on_command_line(name: str) -> str:
    option = ENGINE.get(name) or CHAT.get(name)
    return (spellings(option)[0] or [name])[-1] if option else name


def _typed(definition: Definition) -> dict[str, Any]:
    """Return the arguments of ``click.option`` that follow from a type and its bounds."""
    hint = next((part for part in get_args(definition.type) if part in (int, float, str)), definition.type)
    if hint is bool:
        return {"is_flag": True}
    if get_origin(definition.type) is Literal:
        return {"type": click.Choice([str(value) for value in get_args(definition.type)])}
    if definition.unit:
        return {"type": SizeType(definition.unit, whole=float not in get_args(definition.type)), "metavar": "SIZE"}
    limits = definition.limits
    if hint not in (int, float):
        return {"type": str}
    if not limits:
        return {"type": hint, "metavar": "N" if hint is int else "X"}
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    is_open = {"min_open": "gt" in limits, "max_open": "lt" in limits}
    if hint is int:
        bounds = (None if low is None else int(low), None if high is None else int(high))
        return {"type": click.IntRange(*bounds, **is_open), "metavar": "N"}
    return {"type": click.FloatRange(low, high, **is_open), "metavar": "X"}


def _show_everything(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = CommandOption(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_everything,
    help="Show this message with all options, and exit.",
)
