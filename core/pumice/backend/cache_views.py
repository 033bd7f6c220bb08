"""Blocks and slots of caches in host memory as bytes, for programs whose caches are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pumice.backend.contract import CacheForm, Program

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


class CacheViews:
    """Copies blocks and slots to bytes and back.

    Args:
        blocks: for each attention window, views ``[n_blocks, ...]`` of the arrays that hold its keys and values.
        slots: arrays ``[n_slots, ...]`` of recurrent states.
        computed_by: see ``CacheForm``.
    """

    def __init__(
        self, blocks: Mapping[int, Sequence[NDArray[Any]]], slots: Sequence[NDArray[Any]], computed_by: str
    ) -> None:
        self._blocks = blocks
        self._slots = slots
        n_bytes = {window: sum(map(_row_bytes, arrays)) for window, arrays in blocks.items()}
        layout = [(window, [_layout(array) for array in arrays]) for window, arrays in blocks.items()]
        layout.append((-1, [_layout(array) for array in slots]))
        self.form = CacheForm(n_bytes, sum(map(_row_bytes, slots)), f"{computed_by} {layout}")

    def read_blocks(self, window: int, blocks: Sequence[int]) -> Bytes:
        """Return a copy of blocks of an attention window, ``[len(blocks), block_bytes]``."""
        return _read(self._blocks[window], blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: Bytes) -> None:
        """Write what ``read_blocks`` returned, ``[len(blocks), block_bytes]``."""
        _write(self._blocks[window], blocks, data)

    def read_slots(self, slots: Sequence[int]) -> Bytes:
        """Return a copy of the recurrent states of slots, ``[len(slots), slot_bytes]``."""
        return _read(self._slots, slots)

    def write_slots(self, slots: Sequence[int], data: Bytes) -> None:
        """Write what ``read_slots`` returned, ``[len(slots), slot_bytes]``."""
        _write(self._slots, slots, data)


class HostProgram(Program):
    """A program whose caches are arrays in host memory.

    Attributes:
        cache_views: Views of the caches; None if these cannot be read and written by block.
    """

    cache_views: CacheViews | None = None

    @property
    def cache_form(self) -> CacheForm | None:
        return self.cache_views.form if self.cache_views else None

    def read_blocks(self, window: int, blocks: Sequence[int]) -> Bytes:
        return self._views.read_blocks(window, blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: Bytes) -> None:
        self._views.write_blocks(window, blocks, data)

    def read_slots(self, slots: Sequence[int]) -> Bytes:
        return self._views.read_slots(slots)

    def write_slots(self, slots: Sequence[int], data: Bytes) -> None:
        self._views.write_slots(slots, data)

    @property
    def _views(self) -> CacheViews:
        assert self.cache_views is not None, "a program without a cache_form"
        return self.cache_views


def _read(arrays: Sequence[NDArray[Any]], rows: Sequence[int]) -> Bytes:
    """Return ``[len(rows), bytes of a row in all arrays]``."""
    import numpy as np

    result = np.empty((len(rows), sum(map(_row_bytes, arrays))), np.uint8)
    for i, row in enumerate(rows):
        end = 0
        for array in arrays:
            begin, end = end, end + _row_bytes(array)
            result[i, begin:end].view(array.dtype).reshape(array.shape[1:])[...] = array[row]
    return result


def _write(arrays: Sequence[NDArray[Any]], rows: Sequence[int], data: Bytes) -> None:
    for i, row in enumerate(rows):
        end = 0
        for array in arrays:
            begin, end = end, end + _row_bytes(array)
            array[row] = data[i, begin:end].view(array.dtype).reshape(array.shape[1:])


def _row_bytes(array: NDArray[Any]) -> int:
    return array.nbytes // len(array)


def _layout(array: NDArray[Any]) -> tuple[str, tuple[int, ...]]:
    return array.dtype.str, array.shape[1:]
