"""Sources of a weight's values: a GGUF file, another file, or an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pumice.gguf import GGMLType, TensorSource, block_size, dequantize, type_size


def differ_by_ones(source: TensorSource, shape: tuple[int, ...]) -> bool:
    """Return True if ``shape`` equals a source's but for dimensions of 1, which some writers omit or add."""
    stored, needed = ([n for n in dims if n != 1] for dims in (source.shape, shape))
    return stored == needed and (source.shape[-1] == shape[-1] or block_size(source.type) == 1)


class ReshapedSource:
    """A source with its values in another shape, in the same order; blocks do not cross the ends of rows."""

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
    """An array in memory as a float32 weight."""

    type = GGMLType.F32

    def __init__(self, array: ArrayLike) -> None:
        self._array: NDArray[np.float32] = np.ascontiguousarray(array, np.float32)
        self.shape = self._array.shape
        self.nbytes = self._array.nbytes

    @property
    def data(self) -> NDArray[np.uint8]:
        """The array's bytes, uint8 ``[*shape[:-1], bytes per row]``."""
        return self._array.view(np.uint8)

    def dequantize(self) -> NDArray[np.float32]:
        """Return the array as float32."""
        return self._array

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Keep the array, since there is no file to read it from again."""


class BlocksSource:
    """Rows of blocks in memory, uint8 ``[..., n_rows, bytes per row]``, as a weight ``[..., n_rows, n_columns]``."""

    def __init__(self, data: NDArray[np.uint8], type: GGMLType) -> None:
        self.data = data
        self.type = type
        self.shape = (*data.shape[:-1], data.shape[-1] // type_size(type) * block_size(type))
        self.nbytes = data.nbytes

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as float32."""
        return dequantize(self.data, self.type)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Keep the blocks, which are in no file."""


class DerivedSource:
    """A weight that ``make`` computes from other weights, passed as float32 arrays.

    It is float32 if all of them are stored as float32, else float16, and is kept from the first use until its release.
    """

    def __init__(self, shape: tuple[int, ...], make: Callable[..., NDArray[Any]], of: Sequence[TensorSource]) -> None:
        is_float32 = all(source.type == GGMLType.F32 for source in of)
        self.type = GGMLType.F32 if is_float32 else GGMLType.F16
        self.shape = shape
        self.nbytes = math.prod(shape) * (4 if is_float32 else 2)
        self._make, self._of = make, of
        self._kept: NDArray[Any] | None = None

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._array.view(np.uint8)

    def dequantize(self) -> NDArray[np.float32]:
        return self._array.astype(np.float32, copy=False)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Drop the array once its last byte is released; another use computes it again."""
        if end is None or end >= self.nbytes:
            self._kept = None

    @property
    def _array(self) -> NDArray[Any]:
        if self._kept is None:
            made = self._make(*(source.dequantize() for source in self._of))
            self._kept = np.ascontiguousarray(made, np.float32 if self.type == GGMLType.F32 else np.float16)
            assert self._kept.shape == self.shape, f"a derived weight of shape {self._kept.shape}, not {self.shape}"
        return self._kept
