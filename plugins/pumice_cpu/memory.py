"""Memory for packed weights: a few large pieces.

A token reads every byte of the weights once, so small pages cost it a few percent: a page walk every 4 KiB. But a
system that has to find them, a virtual machine above all, finds small pages two to three times as fast as huge ones,
and a load waits for that. So pages are small at first, and the system may merge them when it has time.
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
        self._new: list[mmap.mmap] = []

    def zeros(self, size: int) -> NDArray[np.uint8]:
        rounded = -(-size // 64) * 64
        if rounded > len(self._piece):
            self._new.append(_allocate(max(rounded, PIECE)))
            self._piece = np.frombuffer(self._new[-1], np.uint8)
        given, self._piece = self._piece[:size], self._piece[rounded:]
        return given

    def written(self) -> None:
        """Say that what was given out is filled now: the system may make its pages huge."""
        if hasattr(mmap, "MADV_HUGEPAGE"):
            for piece in self._new:
                piece.madvise(mmap.MADV_HUGEPAGE)
        self._new.clear()


def _allocate(size: int) -> mmap.mmap:
    """Zero bytes straight from the system; those never touched take no memory."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
