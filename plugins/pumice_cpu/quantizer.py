"""Quantizers for all block types: kernels of ``kernels/quantizers``, compiled when first used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType, Quantizer, block_size, row_bytes
from pumice_cpu.grids import grid
from pumice_cpu.kernel import load_kernels
from pumice_cpu.runtime import aligned_zeros, kernel_function

UNIT = 4096  # numbers; kernels process sixteen groups at once and may read to the end of the last
SCRATCH = 1 << 16  # bytes of scratch memory per kernel

#: Module of each type's kernel. Types that ignore weights have only the plain kernel.
_MODULES = {
    "simple": ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q1_0", "Q2_0"),
    "few_values": ("TQ1_0", "TQ2_0", "MXFP4"),
    "q4_k_q5_k": ("Q4_K", "Q5_K"),
    "q2_k_q3_k_q6_k": ("Q2_K", "Q3_K", "Q6_K"),
    "iq4": ("IQ4_NL", "IQ4_XS"),
    "iq2": ("IQ2_XXS", "IQ2_XS", "IQ2_S"),
    "iq3": ("IQ3_XXS", "IQ3_S"),
    "iq1_s": ("IQ1_S",),
    "iq1_m": ("IQ1_M",),
}
_WITHOUT_WEIGHTS = ("Q8_0", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "MXFP4")
_NEED_WEIGHTS = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
_GRIDS = ("iq2", "iq3", "iq1_s", "iq1_m")  # modules whose kernels need the tables of a grid
_ROW_SUMS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1")  # use the mean square of a row, the others of a block


class CpuQuantizer(Quantizer):
    """The quantizer of one type, with and without importance weights."""

    def __init__(self, module: str, type: GGMLType) -> None:
        self.type = type
        self.module = module
        self._memory = threading.local()

    def __repr__(self) -> str:
        return f"CpuQuantizer({self.type.name})"

    def quantize(self, values: NDArray[np.float32], weights: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        if weights is None and self.type.name in _NEED_WEIGHTS:
            raise ValueError(f"{self.type.name} needs an importance matrix")
        rows, columns = values.shape
        out = np.empty((rows, row_bytes(self.type, columns)), np.uint8)
        if self.type.name in _WITHOUT_WEIGHTS:
            weights = None
        x = self._padded(values)
        scratch = self._scratch()
        needs_sums = weights is not None or self.type is GGMLType.IQ2_S
        sums = self._sums(x, rows, columns) if needs_sums else scratch
        weights = None if weights is None else np.ascontiguousarray(weights, np.float32)
        place = 0 if weights is None else weights.ctypes.data
        kernel = self._plain if weights is None else self._weighted
        n_blocks = values.size // block_size(self.type)
        kernel(x.ctypes.data, place, sums.ctypes.data, scratch.ctypes.data, out.ctypes.data, n_blocks, columns)
        return out

    @cached_property
    def _plain(self) -> Callable[..., None]:
        return _loaded(self.kernel("plain"))

    @cached_property
    def _weighted(self) -> Callable[..., None]:
        return _loaded(self.kernel("weighted"))

    def kernel(self, kind: str) -> str:
        """Return the name of the kernel; ``kind`` is plain or weighted."""
        return f"quantizers.{self.module}.{self.type.name.lower()}:{kind}"

    def _sums(self, x: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
        """Return the sum of squares of each block or row."""
        size = columns if self.type.name in _ROW_SUMS else block_size(self.type)
        n = rows * columns // size
        sums = np.zeros(n + 32, np.float32)
        _loaded("quantizers.groups.squares")(x.ctypes.data, sums.ctypes.data, n, size)
        return sums

    def _padded(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the numbers, padded with zeros to a whole number of units."""
        if values.size % UNIT == 0 and values.flags.c_contiguous:
            return values
        x = np.zeros(-(-values.size // UNIT) * UNIT, np.float32)
        x[: values.size] = values.reshape(-1)
        return x

    def _scratch(self) -> NDArray[np.uint8]:
        """Return the scratch memory of this thread."""
        if not hasattr(self._memory, "scratch"):
            self._memory.scratch = aligned_zeros(SCRATCH)
            if self.module in _GRIDS:
                tables = grid("iq1" if self.module.startswith("iq1") else self.type.name.lower())
                self._memory.tables = tables  # a race of two threads only builds the tables twice
                self._memory.scratch.view(np.int64)[: len(tables)] = [table.ctypes.data for table in tables]
        scratch: NDArray[np.uint8] = self._memory.scratch
        return scratch


def kernels() -> list[str]:
    """Return the names of all quantizer kernels and their helpers."""
    made = ["quantizers.groups.squares"]
    for quantizer in QUANTIZERS.values():
        kinds = {
            "plain": quantizer.type.name not in _NEED_WEIGHTS,
            "weighted": quantizer.type.name not in _WITHOUT_WEIGHTS,
        }
        made += [quantizer.kernel(kind) for kind, exists in kinds.items() if exists]
    return made


def _loaded(name: str) -> Callable[..., None]:
    return kernel_function(load_kernels([name])[name])


QUANTIZERS = {name: CpuQuantizer(module, GGMLType[name]) for module, names in _MODULES.items() for name in names}
"""Quantizers by name of the type."""
