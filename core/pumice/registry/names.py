"""What is registered of one kind, by name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pumice.errors import PluginError
from pumice.guard import describe
from pumice.lazy import resolve
from pumice.registry.kinds import Kind
from pumice.suggest import unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class Registration:
    """One call of ``register``: what a plugin calls ``name``, or the text that says where to import it from."""

    kind: Kind
    name: str
    plugin: str
    target: Any

    def __str__(self) -> str:
        return f"{self.kind.noun} {self.name!r} (plugin {self.plugin})"

    def resolve(self, others: Mapping[str, Any]) -> Any:
        """What is registered, imported if need be, and checked beside the ``others`` of its kind.

        Raises PluginError, which names plugin, name and target.
        """
        try:
            with quiet_stdout():
                thing = resolve(self.target)
                self.kind.check(self.name, thing, others)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            target = f"{self.target}: " if isinstance(self.target, str) else ""
            raise PluginError(f"{self}: {target}{describe(error)}") from error
        return thing


class Names(Mapping[str, T]):
    """What stands for each name of one kind; what is registered as a text is imported when it is first asked for.

    Looking up a name raises KeyError if nobody registered it, and PluginError if it cannot be had: because several
    plugins claim it, or because it cannot be imported.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._claims: dict[str, list[Registration]] = {}
        self._things: dict[
            str, T
        ] = {}  # those that were imported; what is registered as it is, is there from the start
        self.absent = ""
        """For messages: the plugins that did not load, whose the name that is sought may be."""

    def settle(self, claims: Iterable[Registration], prefer: Mapping[str, str], absent: str) -> None:
        """Take what plugins registered; a name that several claim is that of the plugin that ``prefer`` says."""
        self.absent = absent
        for claim in claims:
            if prefer.get(claim.name, claim.plugin) == claim.plugin:
                self._claims.setdefault(claim.name, []).append(claim)
        for name, (first, *others) in self._claims.items():
            if not others and not isinstance(first.target, str):
                self._things[name] = first.target

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            if conflict := self.conflict(name):
                raise PluginError(conflict)
            self._things[name] = self._claims[name][0].resolve(self._things)
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._claims

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def find(self, name: str) -> T:
        """As looking up, but a name that nobody registered is the error of its kind, with the known names."""
        if name not in self:
            raise self.kind.error(self.unknown(name))
        return self[name]

    def unknown(self, name: str) -> str:
        """One line about a name that nobody registered."""
        return unknown_name(self.kind.noun, name, self) + self.absent + self.kind.advice

    def describe(self, name: str) -> str:
        """For messages: ``backend 'cpu' (plugin cpu)``."""
        return str(self._claims[name][0])

    def problems(self) -> Iterator[tuple[str, str]]:
        """Plugin and error for each name that cannot be had. Imports everything."""
        for name, claims in self._claims.items():
            try:
                self[name]
            except PluginError as error:
                yield from ((claim.plugin, str(error)) for claim in claims)

    def conflict(self, name: str) -> str | None:
        """Which plugins claim a name, and what to do; None where it is one's."""
        if len(self._claims[name]) == 1:
            return None
        plugins = " and ".join(repr(claim.plugin) for claim in self._claims[name])
        return (
            f"plugins {plugins} both register the {self.kind.noun} {name!r}; choose one in a configuration file, "
            f"with plugins.prefer.{self.kind.plural}.{name}, or name the other in plugins.disabled"
        )


def quiet_stdout() -> contextlib.redirect_stdout[Any]:
    """What a plugin prints while it is imported goes to standard error: standard output is for text and JSON."""
    return contextlib.redirect_stdout(sys.stderr)
