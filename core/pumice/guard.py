"""Where plugins are called: what they raise unexpectedly becomes an error that names the plugin and the method."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from pumice.errors import PluginError, PumiceError

Called = TypeVar("Called", bound=Callable[..., Any])


def guarded(call: Called, where: str) -> Called:
    """``call``, whose unexpected exceptions become PluginErrors: ``<where>: KeyError: 'x'``."""

    @functools.wraps(call)
    def calling(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except Exception as error:
            raise_named(error, where)

    return calling  # type: ignore[return-value]


def guard(plugged: object, where: str, methods: Iterable[str]) -> None:
    """Have errors of these methods of an object of a plugin begin with ``where``, which names the plugin."""
    for name in methods:
        setattr(plugged, name, guarded(getattr(plugged, name), f"{where}: {name}"))


def raise_named(error: Exception, where: str) -> NoReturn:
    """Raise an error of a plugin. Pumice's own pass, since a plugin raises them on purpose, and so does MemoryError."""
    if isinstance(error, (PumiceError, MemoryError)):
        raise error
    raise PluginError(f"{where}: {describe(error)}") from error


def describe(error: BaseException) -> str:
    """An exception of a plugin in one line."""
    if isinstance(error, PluginError):
        return str(error)
    text = f"{error.msg} ({error.filename}, line {error.lineno})" if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split()).removesuffix(":")
