"""Indexing of arrays of vectors: ``registers[i]`` in kernels."""

from __future__ import annotations

import operator
from typing import Any

from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from pumice_cpu.simd.types import I64, Registers, Vector


@infer_global(operator.getitem)
class _Read(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        registers, _ = args
        return registers.element(registers, types.int64) if isinstance(registers, Registers) else None


@infer_global(operator.setitem)
class _Write(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        registers = args[0]
        if isinstance(registers, Registers):
            return types.void(registers, types.int64, registers.element)
        return None


@lower_builtin(operator.getitem, Registers, types.Integer)
def _read(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return builder.load(builder.gep(values[0], [I64(0), values[1]]))


@lower_builtin(operator.setitem, Registers, types.Integer, Vector)
def _write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    builder.store(values[2], builder.gep(values[0], [I64(0), values[1]]))
    return context.get_dummy_value()
