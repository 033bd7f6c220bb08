"""How an operation on vectors is given to Numba: its types, and a function that builds its LLVM instructions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin

from pumice_cpu.simd.types import I32


def operation(result: Any, *parameters: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make ``generate(builder, *values)`` callable from kernels with arguments of the types ``parameters``."""

    def decorate(generate: Callable[..., Any]) -> Any:
        def typing(context: Any, *args: Any) -> Any:
            def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                value = generate(builder, *values)
                return context.get_dummy_value() if result is types.void else value

            return result(*parameters), lower

        typing.__name__ = generate.__name__
        typing.__signature__ = _positional(1 + len(parameters))  # type: ignore[attr-defined]
        typing.__doc__ = generate.__doc__
        return intrinsic(typing)

    return decorate


def define_operator(symbol: Any, result: Any, parameters: tuple[Any, ...], generate: Callable[..., Any]) -> None:
    """Give a Python operator a meaning for these types, as ``generate(builder, *values)``."""
    signature = result(*parameters)

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return signature if args == parameters else None

    infer_global(symbol)(type("Operator", (AbstractTemplate,), {"generic": generic}))
    lower_builtin(symbol, *parameters)(lambda context, builder, signature, values: generate(builder, *values))


def _positional(count: int) -> inspect.Signature:
    """The signature of a function with this many arguments: Numba wants to see them one by one."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(f"a{i}", kind) for i in range(count)])


def call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Call the LLVM intrinsic ``name``."""
    signature = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), values)


def splat(builder: Any, scalar: Any, vector: ir.VectorType) -> Any:
    """A vector with ``scalar`` in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, scalar, I32(0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count))


def constant(vector: ir.VectorType, value: Any) -> ir.Constant:
    """A constant vector with ``value`` in every lane."""
    return ir.Constant(vector, [value] * vector.count)


def pick(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Lanes of ``a`` followed by ``b``, by number."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))
