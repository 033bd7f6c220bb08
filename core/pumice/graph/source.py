"""Where a weight's numbers come from: a GGUF file, another file, or an array."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.gguf import GGMLType


class TensorSource(Protocol):
    """Stored values. ``GGUFTensor`` is one; ``data`` and ``dequantize`` touch memory only when called.

    ``shape`` is in NumPy's order; ``data`` is uint8 ``[*shape[:-1], bytes of a row]`` of blocks of ``type``;
    ``nbytes`` its size; ``dequantize`` gives float32 of ``shape``.
    """

    @property
    def type(self) -> GGMLType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def data(self) -> NDArray[np.uint8]: ...

    def dequantize(self) -> NDArray[np.float32]: ...

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Bytes ``start`` to ``end`` (None: the last) have been copied: their memory may be given back."""


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
