"""`LazyTensor`: a tensor of a checkpoint, and what is done to it, computed when its numbers are asked for."""

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
    """Numbers that are read when asked for: float32, or integers.

    kind: what they are stored in: F32 (integers too), F16 or BF16; or a type of blocks, whose bytes are read.
    """

    shape: tuple[int, ...]
    kind: GGMLType
    read: Callable[[], Array]
    parts: tuple[LazyTensor, ...] = ()
    """Those that lie one above the other on the first axis, where they can be read one after the other."""

    @classmethod
    def of(cls, array: Any) -> LazyTensor:
        """Numbers that are there already."""
        values = np.ascontiguousarray(array, np.float32)
        return cls(values.shape, GGMLType.F32, lambda: values)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def map(self, function: Callable[[Array], Array], shape: Sequence[int] | None = None) -> LazyTensor:
        """With ``function`` applied; ``shape`` is that of its result, if it is another."""
        shape = self.shape if shape is None else tuple(shape)
        return replace(self, shape=shape, read=lambda: function(self.read()), parts=())

    def __add__(self, number: float) -> LazyTensor:
        return replace(self.map(lambda x: x + np.float32(number)), kind=GGMLType.F32)

    def __getitem__(self, index: Any) -> LazyTensor:
        """Part of it, by NumPy's rules."""
        shape = getitem(np.broadcast_to(np.float32(0), self.shape), index).shape
        return self.map(lambda x: getitem(x, index), shape)

    def reshape(self, *shape: int) -> LazyTensor:
        shape = np.broadcast_to(np.float32(0), self.shape).reshape(shape).shape  # checks it, and finds a -1
        return self.map(lambda x: x.reshape(shape), shape)

    def transpose(self, *axes: int) -> LazyTensor:
        order = axes or tuple(range(len(self.shape)))[::-1]
        return self.map(lambda x: x.transpose(order), [self.shape[axis] for axis in order])

    def split(self, *sizes: int, axis: int = 0) -> list[LazyTensor]:
        """Parts side by side on one axis."""
        ends = np.cumsum(sizes).tolist()
        before = (slice(None),) * axis
        return [self[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]

    def halves(self, axis: int = 0) -> tuple[LazyTensor, LazyTensor]:
        """The first and the second half on one axis, such as gate and up of a layer in one matrix."""
        half = self.shape[axis] // 2
        first, second = self.split(half, self.shape[axis] - half, axis=axis % len(self.shape))
        return first, second

    def pad(self, n: int) -> LazyTensor:
        """With ``n`` rows of zeros behind it."""
        widths = [(0, n), *((0, 0) for _ in self.shape[1:])]
        return self.map(lambda x: np.pad(x, widths), (self.shape[0] + n, *self.shape[1:]))

    def squeeze(self) -> LazyTensor:
        """Without axes of one."""
        return self.reshape(*(n for n in self.shape if n != 1))

    def __mul__(self, number: float) -> LazyTensor:
        return self.map(lambda x: x * np.float32(number))

    def integers(self, kind: GGMLType) -> LazyTensor:
        """As whole numbers of a type of GGUF's, I32 or I64."""
        dtype = {GGMLType.I32: "<i4", GGMLType.I64: "<i8"}[kind]

        def read() -> NDArray[np.uint8]:
            return np.ascontiguousarray(self.read(), dtype).view(np.uint8)

        return LazyTensor(self.shape, kind, read)

    def exponents(self) -> LazyTensor:
        """Of powers of two the biased exponents, as E8M0 and the bits of float32 have them."""
        return self.map(lambda x: np.ascontiguousarray(x, np.float32).view(np.uint32) >> 23 & 0xFF)

    def interleave_rope(self, n_head: int) -> LazyTensor:
        """Rows of each head from halves to pairs: GGUF's llama turns values ``(2i, 2i + 1)``, Hugging Face's
        ``(i, i + d/2)`` (Su et al. 2021, arXiv:2104.09864).
        """
        parts = self.reshape(n_head, 2, self.shape[0] // n_head // 2, *self.shape[1:])
        return parts.transpose(0, 2, 1, *range(3, len(parts.shape))).reshape(*self.shape)


def stack(tensors: Sequence[LazyTensor]) -> LazyTensor:
    """Tensors of one shape one above the other, on a new first axis."""
    first = tensors[0]
    shape = (len(tensors), *first.shape)
    return LazyTensor(shape, first.kind, lambda: np.stack([each.read() for each in tensors]), tuple(tensors))


def concatenate(tensors: Sequence[LazyTensor], axis: int = 0) -> LazyTensor:
    """Tensors one after the other on one axis."""
    shape = list(tensors[0].shape)
    shape[axis] = reduce(lambda n, each: n + each.shape[axis], tensors, 0)
    parts = () if axis else tuple(tensors)
    return LazyTensor(
        tuple(shape), tensors[0].kind, lambda: np.concatenate([each.read() for each in tensors], axis), parts
    )
