"""Blocks and slots of caches in host memory as bytes, for programs whose caches are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pumice.backend.contract import CacheForm

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
        return _read(self._blocks[window], blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: Bytes) -> None:
        _write(self._blocks[window], blocks, data)

    def read_slots(self, slots: Sequence[int]) -> Bytes:
        return _read(self._slots, slots)

    def write_slots(self, slots: Sequence[int], data: Bytes) -> None:
        _write(self._slots, slots, data)


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
