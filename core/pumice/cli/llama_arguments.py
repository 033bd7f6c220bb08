"""Command lines of llama.cpp's programs: options that a command lacks are left out, translated or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import click

from pumice.cli.llama_names import (
    FLAGS,
    NOT_DONE,
    NOT_DONE_VALUES,
    REASONS,
    TRANSLATIONS,
    VALUES,
    Translation,
    by_name,
)
from pumice.cli.output import echo

_SWITCHES = ("-fa", "--flash-attn", "-co", "--color", "--log-colors")
"""Options whose value was added later, so that it may be missing."""
_STATES = ("on", "enabled", "true", "1", "off", "disabled", "false", "0", "auto", "-1")


@dataclass(frozen=True)
class LlamaOptions:
    """Options of a program of llama.cpp that a command here does not have.

    Attributes:
        subjects: The subject of each ignored option.
        ignored: The number of values of each ignored option; texts are the same without them.
        undone: The reason of ignored options for what is not done here.
        refused: What to do instead of each option that would change texts.
        implied: Options for what the command does anyway.
        translations: Options with another name here, and the arguments that they stand for.
    """

    subjects: Mapping[str, str]
    ignored: Mapping[str, int]
    undone: Mapping[str, str]
    refused: Mapping[str, str]
    implied: frozenset[str] = frozenset()
    translations: Mapping[str, Translation] = field(default_factory=dict)

    @classmethod
    def of_program(
        cls,
        flags: Mapping[str, str],
        values: Mapping[str, str],
        undone: Mapping[str, str],
        undone_values: Mapping[str, str],
        refused: Mapping[str, str],
    ) -> Self:
        """Return the options of a program: those that all programs share, and its own.

        Args:
            flags: Ignored options without a value, by their subject.
            values: Ignored options with a value, by their subject.
            undone: Ignored options without a value, by the reason.
            undone_values: Ignored options with a value, by the reason.
            refused: Refused options, by what to do instead.
        """
        of_flags, of_values = by_name(FLAGS) | by_name(flags), by_name(VALUES) | by_name(values)
        of_undone = by_name(NOT_DONE) | by_name(undone)
        of_undone_values = by_name(NOT_DONE_VALUES) | by_name(undone_values)
        return cls(
            subjects=of_flags | of_values,
            ignored=dict.fromkeys([*of_flags, *of_undone], 0) | dict.fromkeys([*of_values, *of_undone_values], 1),
            undone=of_undone | of_undone_values,
            refused=by_name(REASONS) | by_name(refused),
            translations=TRANSLATIONS,
        )

    def leave_out(self, arguments: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[str]]:
        """Return the arguments without ignored options, and the ignored options.

        Args:
            arguments: Command line after the name of the command.
            own: Names of the command's own options, and whether each takes a value.

        Raises:
            click.UsageError: An option is refused, or lacks its value.
        """
        kept: list[str] = []
        ignored: list[str] = []
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            name, equals, value = argument.partition("=")
            if argument == "--":
                return [*kept, argument, *rest], ignored
            if name in own:
                kept.append(argument)
                if own[name] and not equals and rest:
                    kept.append(rest.pop(0))
            elif name in self.translations:
                n_values, translated = self.translations[name]
                kept += translated((value if equals else _next(name, rest)) if n_values else "")
            elif name in self.refused:
                raise click.UsageError(f"{name}: {self.refused[name]}")
            elif name in self.ignored:
                ignored.append(name)
                if not equals and self._has_value(name, rest):
                    rest.pop(0)
            elif name not in self.implied:
                kept.append(argument)
        return kept, ignored

    def _has_value(self, name: str, rest: Sequence[str]) -> bool:
        """Return True if the next argument is the value of an ignored option."""
        return bool(rest) and (rest[0] in _STATES if name in _SWITCHES else bool(self.ignored[name]))

    def arguments_for(self, args: Sequence[str], command: click.Command) -> list[str]:
        """Return the arguments for a command, and warn of the options that are left out. Raises UsageError."""
        options = [param for param in command.params if isinstance(param, click.Option)]
        own = {name: not param.is_flag for param in options for name in (*param.opts, *param.secondary_opts)}
        kept, ignored = self.leave_out(args, own)
        for name in ignored:
            meaningless = f"has no meaning for pumice {command.name}, and is ignored"
            why = f"is ignored: {self.undone[name]}" if name in self.undone else meaningless
            echo(f"warning: {name} {why}", err=True)
        return kept


def _next(name: str, rest: list[str]) -> str:
    """Take the value of an option from the arguments behind it. Raises UsageError without one."""
    if not rest:
        raise click.UsageError(f"option {name!r} requires an argument")
    return rest.pop(0)
