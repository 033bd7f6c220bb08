"""Fuzzing targets. `load` imports one by name."""

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Target:
    """The interface of a module in this folder.

    Attributes:
        check: raises an exception if ``data`` reveals a fault; catches the documented errors itself.
        seeds: initial inputs, made from fixtures.
        tokens: byte strings that a mutator inserts.
        modules: packages and modules under test, whose coverage is reported.
        max_len: maximum length of an input in bytes.
        runs: number of inputs that `make test` tries.
        summary: first line of the module's docstring.
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
    """Import a target by name."""
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
