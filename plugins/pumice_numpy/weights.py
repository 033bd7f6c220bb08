"""Weights as float32 arrays, decoded on demand and cached within a memory limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType, Weight, dequantize, fixed

F32Array = NDArray[np.float32]


class WeightCache:
    """Decoded weights of one model, up to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._kept: dict[str, F32Array] = {}

    def get(self, weight: Weight) -> F32Array | EncodedWeight:
        """Return the weight as an array, or as a decoder of the indexed rows if it is too large to cache."""
        if weight.type == GGMLType.F32:
            return weight.dequantize()  # a view of the mapped file
        if weight.name not in self._kept:
            size = 4 * int(np.prod(fixed(weight.shape)))
            if size > self._free:
                return EncodedWeight(weight)
            self._kept[weight.name] = weight.dequantize()
            self._free -= size
        return self._kept[weight.name]

    def forget(self, weight: Weight) -> None:
        """Decode a weight again when it is next used."""
        if (kept := self._kept.pop(weight.name, None)) is not None:
            self._free += kept.nbytes


class EncodedWeight:
    """A stand-in for a float32 array that decodes the indexed rows."""

    def __init__(self, weight: Weight) -> None:
        self._weight = weight
        self.shape = weight.shape

    def __getitem__(self, index: Any) -> F32Array:
        return dequantize(self._weight.data[index], self._weight.type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> F32Array:
        return self._weight.dequantize()
