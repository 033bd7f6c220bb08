"""Memory for packed weights, allocated in a few large chunks.

A token reads every byte of the weights once, so small pages cost a few percent of time: a page walk every 4 KiB. But an
operating system, a virtual machine above all, provides small pages two to three times as fast as huge ones, and model
loading waits for that. Pages are therefore small at first, and the system may merge them later.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import zeroed_pages

PIECE = 64 * 2**20


class WeightMemory:
    """An allocator of zeroed memory, aligned to 64 bytes, that stays alive as long as it is referenced."""

    def __init__(self) -> None:
        self._piece: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._new: list[mmap.mmap] = []

    def zeros(self, size: int) -> NDArray[np.uint8]:
        rounded = -(-size // 64) * 64
        if rounded > len(self._piece):
            self._new.append(zeroed_pages(max(rounded, PIECE)))
            self._piece = np.frombuffer(self._new[-1], np.uint8)
        allocation, self._piece = self._piece[:size], self._piece[rounded:]
        return allocation

    def written(self) -> None:
        """Mark the allocated memory as filled, so that the system may merge its pages into huge ones."""
        if hasattr(mmap, "MADV_HUGEPAGE"):
            for piece in self._new:
                piece.madvise(mmap.MADV_HUGEPAGE)
        self._new.clear()
