"""Memory for packed weights: a few large pieces, in huge pages where the system has them.

A token reads every byte of the weights once, so small pages would cost a page walk every 4 KiB.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

PIECE = 64 * 2**20


class WeightMemory:
    """Gives out zeroed memory at multiples of 64 bytes, for as long as somebody uses it."""

    def __init__(self) -> None:
        self._piece: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def zeros(self, size: int) -> NDArray[np.uint8]:
        rounded = -(-size // 64) * 64
        if rounded > len(self._piece):
            self._piece = _allocate(max(rounded, PIECE))
        given, self._piece = self._piece[:size], self._piece[rounded:]
        return given


def _allocate(size: int) -> NDArray[np.uint8]:
    """Zero bytes straight from the system; those never touched take no memory."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
