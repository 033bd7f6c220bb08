"""Functions that kernels call, which LLVM inlines.

A function is translated once for each signature. Numba's own inlining would copy its statements into each caller, and
those of the caller into the next, and most of the time of a compilation would go into such copies.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import registry
from numba.core.typing.templates import AbstractTemplate, Signature
from numba.extending import typeof_impl

from pumice_cpu.translation import INLINED, translate


class Inline:
    """A function that kernels call; see ``inline``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        self.type = types.Function(type("Inlined", (_Template,), {"key": self}))
        self._signatures: dict[tuple[Any, ...], Any] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def translated(self, args: tuple[Any, ...]) -> Any:
        """Return Numba's signature for arguments of these types, translating the function on first use."""
        if args not in self._signatures:
            translated = translate(self.function, args)
            INLINED[translated.name] = translated
            registry.cpu_target.target_context.insert_user_function((self, args), translated.description)
            self._signatures[args] = Signature(translated.result, args, None)
        return self._signatures[args]


def inline(function: Callable[..., Any]) -> Inline:
    """Make a function callable from kernels, and from other such functions."""
    return Inline(function)


class _Template(AbstractTemplate):
    """Gives Numba the type of a call's result, and the name under which the function's code was inserted."""

    key: Inline

    def generic(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return self.key.translated(self.key.signature.bind(*args, **kws).args)

    def get_impl_key(self, signature: Any) -> Any:
        return self.key, signature.args


@typeof_impl.register(Inline)
def _typeof(value: Inline, context: Any) -> Any:
    return value.type
