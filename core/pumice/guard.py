"""Guarded calls of plugins: an unexpected exception becomes a PluginError that names the plugin and the method."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from pumice.errors import PluginError, PumiceError

Called = TypeVar("Called", bound=Callable[..., Any])


class Terminated(SystemExit):
    """The end of the process by a signal, which may come in the middle of a plugin's call."""


UNEXPECTED = BaseException
"""Exceptions of plugins that become PluginErrors, unless ``raise_named`` passes them on.

A SystemExit, or the PanicException of a library in Rust, would end the engine's thread without a word.
"""

PASSED = (Terminated, KeyboardInterrupt, GeneratorExit)
"""Exceptions that end the process or a generator, and are no errors of a plugin."""


def guarded(call: Called, where: str) -> Called:
    """Return ``call`` with unexpected exceptions converted to PluginErrors: ``<where>: KeyError: 'x'``."""

    @functools.wraps(call)
    def calling(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except UNEXPECTED as error:
            raise_named(error, where)

    return calling  # type: ignore[return-value]


def guard(plugged: object, where: str, methods: Iterable[str]) -> None:
    """Guard methods of a plugin's object in place.

    Args:
        plugged: the object.
        where: name of the plugin, at the beginning of error messages.
        methods: names of the methods.
    """
    for name in methods:
        setattr(plugged, name, guarded(getattr(plugged, name), f"{where}: {name}"))


def raise_named(error: BaseException, where: str) -> NoReturn:
    """Raise a plugin's error as PluginError.

    A PumiceError is raised unchanged, as intended; so are a MemoryError, which a system call without memory is, too,
    the end of the process or of a generator, and any error if ``where`` is empty: that of no plugin.
    """
    if not where or isinstance(error, (PumiceError, MemoryError, *PASSED)):
        raise error
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:  # of mapping memory
        raise MemoryError from error
    raise PluginError(f"{where}: {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Return the description of a plugin's exception in one line."""
    if isinstance(error, PluginError):
        return str(error)
    text = f"{error.msg} ({error.filename}, line {error.lineno})" if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split()).removesuffix(":")
