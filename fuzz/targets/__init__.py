"""Targets. `load` imports one by name and returns it."""

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Target:
    """What a module of this folder defines.

    check: Raises an exception if ``data`` shows a fault. An error of the documented class is caught there, not here.
    seeds: Inputs to begin with, made from fixtures.
    tokens: Pieces that a mutator inserts.
    modules: Packages and modules under test, whose coverage is reported.
    max_len: Longest input in bytes.
    runs: Inputs that `make test` tries.
    summary: First line of the module's docstring.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    tokens: tuple[bytes, ...]
    modules: tuple[str, ...]
    max_len: int
    runs: int
    summary: str


def names() -> list[str]:
    """Return the names of all targets."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Target:
    """Import a target by its name."""
    module = import_module(f"{__name__}.{name}")
    return Target(
        name=name,
        check=module.check,
        seeds=module.seeds,
        tokens=getattr(module, "TOKENS", ()),
        modules=module.MODULES,
        max_len=getattr(module, "MAX_LEN", 4096),
        runs=getattr(module, "RUNS", 300),
        summary=(module.__doc__ or "").splitlines()[0],
    )
