"""Where a weight's numbers come from: a GGUF file, another file, or an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.gguf import GGMLType, TensorSource, block_size


def differ_by_ones(source: TensorSource, shape: tuple[int, ...]) -> bool:
    """Whether ``shape`` is that of a source but for dimensions of 1, which writers leave out or add as they like."""
    stored, wanted = ([n for n in each if n != 1] for each in (source.shape, shape))
    return stored == wanted and (source.shape[-1] == shape[-1] or block_size(source.type) == 1)


class ReshapedSource:
    """A source whose values have another shape, in the same order; its blocks do not cross the ends of rows."""

    def __init__(self, source: TensorSource, shape: tuple[int, ...]) -> None:
        self._source = source
        self.type = source.type
        self.shape = shape
        self.nbytes = source.nbytes
        self.release = source.release

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._source.data.reshape(*self.shape[:-1], -1)

    def dequantize(self) -> NDArray[np.float32]:
        return self._source.dequantize().reshape(self.shape)


class ArraySource:
    """An array in memory as a weight: float32, whatever number type it had."""

    type = GGMLType.F32

    def __init__(self, array: Any) -> None:
        self._array: NDArray[np.float32] = np.ascontiguousarray(array, np.float32)
        self.shape = self._array.shape
        self.nbytes = self._array.nbytes

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._array.view(np.uint8)

    def dequantize(self) -> NDArray[np.float32]:
        return self._array

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Keeps the array: there is no file to read it from again."""


class DerivedSource:
    """What ``make`` computes of other weights, float32 arrays: float32 if all of them are stored so, else float16.

    It is kept from the first use until it is released.
    """

    def __init__(self, shape: tuple[int, ...], make: Callable[..., Any], of: Sequence[TensorSource]) -> None:
        whole = all(source.type == GGMLType.F32 for source in of)
        self.type = GGMLType.F32 if whole else GGMLType.F16
        self.shape = shape
        self.nbytes = math.prod(shape) * (4 if whole else 2)
        self._make, self._of = make, of
        self._kept: NDArray[Any] | None = None

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._array.view(np.uint8)

    def dequantize(self) -> NDArray[np.float32]:
        return self._array.astype(np.float32, copy=False)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Drops the array once its last byte has been copied; another use computes it again."""
        if end is None or end >= self.nbytes:
            self._kept = None

    @property
    def _array(self) -> NDArray[Any]:
        if self._kept is None:
            made = self._make(*(source.dequantize() for source in self._of))
            self._kept = np.ascontiguousarray(made, np.float32 if self.type == GGMLType.F32 else np.float16)
            assert self._kept.shape == self.shape, f"a derived weight of shape {self._kept.shape}, not {self.shape}"
        return self._kept
