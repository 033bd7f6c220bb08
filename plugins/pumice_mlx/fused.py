"""Functions of elements that MLX compiles for arrays of any shape: a single kernel on a GPU instead of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx

Compiled = dict["Fused", Callable[..., mx.array]]
"""Compiled functions of a model. MLX ends the process if one outlives the thread that called it."""

_COMPILED: ContextVar[Compiled | None] = ContextVar("compiled", default=None)


@contextmanager
def fusing(compiled: Compiled | None) -> Iterator[None]:
    """Compile functions of elements that are called within the context, if ``compiled`` is given, which keeps them."""
    token = _COMPILED.set(compiled)
    try:
        yield
    finally:
        _COMPILED.reset(token)


def fuses() -> bool:
    """Return True if functions of elements are compiled."""
    return _COMPILED.get() is not None


class Fused:
    """A function of elements, compiled within ``fusing``. In a compiled step it is a part of the step's graph."""

    def __init__(self, function: Callable[..., mx.array]) -> None:
        self._function = function

    def __call__(self, *arguments: Any, **options: Any) -> mx.array:
        compiled = _COMPILED.get()
        if compiled is None:
            return self._function(*arguments, **options)
        if self not in compiled:
            compiled[self] = mx.compile(self._function, shapeless=True)
        return compiled[self](*arguments, **options)
