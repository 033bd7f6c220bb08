"""Arenas: the few large allocations of a loaded model, counted so that tests can prove that steps allocate nothing."""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Any

from pumice.errors import OutOfMemoryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray


class Arena:
    """A block of host memory that provides array views by offset.

    Args:
        size: bytes.
        purpose: use of the memory, named in the error if it cannot be allocated.
    """

    #: Number of arenas that this process created.
    count = 0

    def __init__(self, size: int, purpose: str) -> None:
        import numpy as np

        self.size = size
        try:
            self._bytes: NDArray[np.uint8] = np.frombuffer(zeroed_pages(max(size, 1)), np.uint8)[:size]
        except (MemoryError, OSError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                f"not enough memory: {purpose} needs {size / 2**20:.0f} MiB; use a smaller n_ctx, n_batch or kv_type"
            ) from error
        Arena.count += 1

    def view(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return a view of the memory at ``offset`` bytes as an array."""
        import numpy as np

        dtype = np.dtype(dtype)
        n_bytes = math.prod(shape) * dtype.itemsize
        return self._bytes[offset : offset + n_bytes].view(dtype).reshape(shape)


def zeroed_pages(size: int) -> mmap.mmap:
    """Map zeroed memory from the system. Pages that are not touched take no memory.

    ``numpy.zeros`` asks for huge pages: the first byte of a cache's block would commit 2 MiB, and wait for them.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
