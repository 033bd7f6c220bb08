"""`LazyTensor`: a tensor of a checkpoint with pending operations, computed when its values are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.gguf import GGMLType

Array = NDArray[Any]


@dataclass(frozen=True)
class LazyTensor:
    """A tensor whose values, float32 or integers, are computed on demand.

    Attributes:
        shape: shape of the values.
        kind: stored type: F32 (for integers, too), F16 or BF16, or a block type, for which ``read`` returns bytes.
        read: returns the values.
    """

    shape: tuple[int, ...]
    kind: GGMLType
    read: Callable[[], Array]
    parts: tuple[LazyTensor, ...] = ()
    """Parts along the first axis, if they can be read one after the other."""

    @classmethod
    def of(cls, array: Any) -> LazyTensor:
        """Return a tensor of values in memory."""
        values = np.ascontiguousarray(array, np.float32)
        return cls(values.shape, GGMLType.F32, lambda: values)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def map(self, function: Callable[[Array], Array], shape: Sequence[int] | None = None) -> LazyTensor:
        """Return the tensor with ``function`` applied; ``shape`` is the result's shape if it differs."""
        shape = self.shape if shape is None else tuple(shape)
        return replace(self, shape=shape, read=lambda: function(self.read()), parts=())

    def __add__(self, number: float) -> LazyTensor:
        return replace(self.map(lambda x: x + np.float32(number)), kind=GGMLType.F32)

    def __getitem__(self, index: Any) -> LazyTensor:
        """Return a part by NumPy's rules of indexing."""
        shape = getitem(np.broadcast_to(np.float32(0), self.shape), index).shape
        return self.map(lambda x: getitem(x, index), shape)

    def reshape(self, *shape: int) -> LazyTensor:
        shape = np.broadcast_to(np.float32(0), self.shape).reshape(shape).shape  # validates it and resolves -1
        return self.map(lambda x: x.reshape(shape), shape)

    def transpose(self, *axes: int) -> LazyTensor:
        order = axes or tuple(range(len(self.shape)))[::-1]
        return self.map(lambda x: x.transpose(order), [self.shape[axis] for axis in order])

    def split(self, *sizes: int, axis: int = 0) -> list[LazyTensor]:
        """Return consecutive parts along one axis. Raises ValueError unless they are all of it."""
        if sum(sizes) != self.shape[axis]:
            raise ValueError(f"{self.shape[axis]} values along axis {axis} are not {' + '.join(map(str, sizes))}")
        ends = np.cumsum(sizes).tolist()
        before = (slice(None),) * axis
        return [self[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]

    def halves(self, axis: int = 0) -> tuple[LazyTensor, LazyTensor]:
        """Return both halves along one axis, such as gate and up projections in one matrix. Raises like ``split``."""
        half = self.shape[axis] // 2
        first, second = self.split(half, half, axis=axis % len(self.shape))
        return first, second

    def pad(self, n: int) -> LazyTensor:
        """Return the tensor with ``n`` rows of zeros appended."""
        widths = [(0, n), *((0, 0) for _ in self.shape[1:])]
        return self.map(lambda x: np.pad(x, widths), (self.shape[0] + n, *self.shape[1:]))

    def squeeze(self) -> LazyTensor:
        """Return the tensor without axes of length one."""
        return self.reshape(*(n for n in self.shape if n != 1))

    def __mul__(self, number: float) -> LazyTensor:
        return self.map(lambda x: x * np.float32(number))

    def integers(self, kind: GGMLType) -> LazyTensor:
        """Return the tensor as I32 or I64."""
        dtype = {GGMLType.I32: "<i4", GGMLType.I64: "<i8"}[kind]

        def read() -> NDArray[np.uint8]:
            return np.ascontiguousarray(self.read(), dtype).view(np.uint8)

        return LazyTensor(self.shape, kind, read)

    def exponents(self) -> LazyTensor:
        """Return the biased exponents of powers of two, as in E8M0 and float32."""
        return self.map(lambda x: np.ascontiguousarray(x, np.float32).view(np.uint32) >> 23 & 0xFF)

    def interleave_rope(self, n_head: int, n_rot: int = 0) -> LazyTensor:
        """Reorder the rows of each head for RoPE, or the first ``n_rot`` of them.

        GGUF's llama rotates the pairs ``(2i, 2i + 1)``, Hugging Face's ``(i, i + d/2)`` (Su et al. 2021,
        arXiv:2104.09864).
        """
        n_rows = self.shape[0] // n_head
        if n_rot not in (0, n_rows):
            heads = self.reshape(n_head, n_rows, *self.shape[1:])
            turned, others = heads.split(n_rot, n_rows - n_rot, axis=1)
            pairs = turned.reshape(n_head * n_rot, *self.shape[1:]).interleave_rope(n_head).reshape(*turned.shape)
            return concatenate([pairs, others], axis=1).reshape(*self.shape)
        parts = self.reshape(n_head, 2, self.shape[0] // n_head // 2, *self.shape[1:])
        return parts.transpose(0, 2, 1, *range(3, len(parts.shape))).reshape(*self.shape)


def stack(tensors: Sequence[LazyTensor]) -> LazyTensor:
    """Stack tensors of one shape along a new first axis."""
    first = tensors[0]
    shape = (len(tensors), *first.shape)
    return LazyTensor(shape, first.kind, lambda: np.stack([tensor.read() for tensor in tensors]), tuple(tensors))


def concatenate(tensors: Sequence[LazyTensor], axis: int = 0) -> LazyTensor:
    """Concatenate tensors along one axis."""
    shape = list(tensors[0].shape)
    shape[axis] = reduce(lambda n, tensor: n + tensor.shape[axis], tensors, 0)
    parts = () if axis else tuple(tensors)
    return LazyTensor(
        tuple(shape), tensors[0].kind, lambda: np.concatenate([tensor.read() for tensor in tensors], axis), parts
    )
