"""Registrations of one kind, by name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pumice.errors import PluginError
from pumice.guard import describe
from pumice.lazy import resolve
from pumice.registry.kinds import Kind
from pumice.registry.quiet import quiet_stdout
from pumice.wording import unknown_name

logger = logging.getLogger("pumice")

T = TypeVar("T")


@dataclass(frozen=True)
class Registration:
    """One call of ``register``: a thing with a name, or a text with the place to import it from."""

    kind: Kind
    name: str
    plugin: str
    target: Any

    def __str__(self) -> str:
        return f"{self.kind.noun} {self.name!r} (plugin {self.plugin})"

    def resolve(self, others: Mapping[str, Any]) -> Any:
        """Return the registered thing, imported if necessary, and checked against the ``others`` of its kind.

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
    """The things of one kind by name; those registered as a text are imported on first use.

    A lookup raises KeyError for an unknown name, and PluginError if several plugins claim the name or the import fails.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._claims: dict[str, list[Registration]] = {}
        self._things: dict[str, T] = {}  # imported things, and those that were registered directly
        self.absent = ""
        """Plugins that did not load, for messages about unknown names."""

    def settle(self, claims: Iterable[Registration], prefer: Mapping[str, str], absent: str) -> None:
        """Set the registrations; a name that several plugins claim goes to the one in ``prefer``."""
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
            self._things[name] = self._claims[name][0].resolve(dict(self._things))  # other threads look up, too
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._claims

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def find(self, name: str) -> T:
        """Like a lookup, but raise the kind's error with the known names for an unknown name."""
        if name not in self:
            raise self.kind.error(self.unknown(name))
        return self[name]

    def without_conflicts(self, names: Iterable[str]) -> dict[str, T]:
        """Return those of ``names`` that exactly one plugin registers."""
        return {name: self[name] for name in names if name in self and not self.conflict(name)}

    def working(self) -> dict[str, T]:
        """Return all that can be imported and keep the contract; the rest is left out, with a warning.

        Raises PluginError if several plugins claim a name.
        """
        things = {}
        for name in self:
            try:
                things[name] = self[name]
            except PluginError as error:
                if self.conflict(name):
                    raise
                logger.warning("%s; it is left out", error)
        return things

    def unknown(self, name: str) -> str:
        """Return one line about an unknown name."""
        return unknown_name(self.kind.noun, name, self) + self.kind.advice

    def describe(self, name: str) -> str:
        """Describe a name for messages: ``backend 'cpu' (plugin cpu)``."""
        return str(self._claims[name][0])

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield plugin and error for each name that is not available. Imports everything."""
        for name, claims in self._claims.items():
            try:
                self[name]
            except PluginError as error:
                yield from ((claim.plugin, str(error)) for claim in claims)

    def conflict(self, name: str) -> str | None:
        """Return a message if several plugins claim a name, with what to do; otherwise None."""
        if len(self._claims[name]) == 1:
            return None
        plugins = " and ".join(repr(claim.plugin) for claim in self._claims[name])
        return (
            f"plugins {plugins} both register the {self.kind.noun} {name!r}; choose one in a configuration file, "
            f"with plugins.prefer.{self.kind.plural}.{name}, or name the other in plugins.disabled"
        )
