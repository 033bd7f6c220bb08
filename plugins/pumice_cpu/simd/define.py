"""Definition of vector operations for Numba: their types, and a function that builds their LLVM instructions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin

from pumice_cpu.isa import Isa
from pumice_cpu.simd.types import I32

#: Operations implemented per instruction set: by LLVM name, the function that builds it, and its type.
_OF_SETS: dict[str, tuple[Callable[..., Any], ir.FunctionType]] = {}


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
    """Overload a Python operator for these types with ``generate(builder, *values)``."""
    signature = result(*parameters)

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return signature if args == parameters else None

    infer_global(symbol)(type("Operator", (AbstractTemplate,), {"generic": generic}))
    lower_builtin(symbol, *parameters)(lambda context, builder, signature, values: generate(builder, *values))


def of_set(*signatures: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make ``generate(isa, builder, *values)`` an LLVM function with a definition for each instruction set.

    Numba's output for a kernel is thus the same for all sets. A signature has the LLVM types of the result and of the
    values; LLVM inlines the function.
    """

    def decorate(generate: Callable[..., Any]) -> Callable[..., Any]:
        names = {}
        for i, (result, *parameters) in enumerate(signatures):
            names[tuple(parameters)] = name = f"pumice.{generate.__name__}.{i}"
            _OF_SETS[name] = generate, ir.FunctionType(result, parameters)

        @functools.wraps(generate)
        def call_it(builder: Any, *values: Any) -> Any:
            name = names[tuple(value.type for value in values)]
            function = cgutils.get_or_insert_function(builder.module, _OF_SETS[name][1], name)
            function.attributes.add("nounwind")
            function.attributes.add("readnone")
            return builder.call(function, values)

        return call_it

    return decorate


@functools.cache
def definitions(isa: Isa) -> str:
    """Return LLVM IR with this instruction set's definitions of all ``of_set`` functions."""
    module = ir.Module()
    for name, (generate, type) in _OF_SETS.items():
        function = ir.Function(module, type, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("alwaysinline")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(generate(isa, builder, *function.args))
    return str(module)


def _positional(count: int) -> inspect.Signature:
    """Return the signature of a function with ``count`` positional arguments; Numba needs them one by one."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(f"a{i}", kind) for i in range(count)])


def call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Call the LLVM intrinsic ``name``."""
    signature = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), values)


def splat(builder: Any, scalar: Any, vector: ir.VectorType) -> Any:
    """Return a vector with ``scalar`` in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, scalar, I32(0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count))


def constant(vector: ir.VectorType, value: Any) -> ir.Constant:
    """Return a constant vector with ``value`` in every lane."""
    return ir.Constant(vector, [value] * vector.count)


def pick(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Select lanes, by number, of ``a`` followed by ``b``."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))
