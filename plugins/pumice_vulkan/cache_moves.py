"""Blocks and slots of a device's caches as bytes in host memory, for tiers behind the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import CacheForm, KVState, Limits, RecurrentState, State
from pumice_vulkan.device import Buffer, Device, Encoder
from pumice_vulkan.kv_cache import CacheLayout
from pumice_vulkan.memory import BufferSlice

Bytes = NDArray[np.uint8]

STAGING_BYTES = 16 * 2**20  # copied by one submit, unless a single row is larger
SLOTS = -1  # stands for recurrent states where windows stand for blocks


class _Strip(NamedTuple):
    """Adjacent rows of a cache: ``n_bytes`` for each block, or slot, from byte ``begin`` of a buffer on."""

    buffer: Buffer
    begin: int
    n_bytes: int


class CacheMoves:
    """Copies blocks and slots through host memory that the device reaches, allocated on first use.

    Args:
        states: states of a segment. ``places``: what their rules allocated.
        computed_by: see ``CacheForm``.
    """

    def __init__(
        self, device: Device, states: Iterable[State], places: Mapping[State, Any], limits: Limits, computed_by: str
    ) -> None:
        self._device = device
        self._staging: Buffer | None = None
        self._strips: dict[int, list[_Strip]] = {}
        for state in states:
            if isinstance(state, KVState):
                layout, place = places[state]
                self._strips.setdefault(state.window, []).extend(_strips_of(layout, place, state, limits))
            elif isinstance(state, RecurrentState):
                place = places[state]
                strip = _Strip(place.buffer, 4 * place.offset, 4 * math.prod(state.shape))
                self._strips.setdefault(SLOTS, []).append(strip)
        sizes = {key: self._row_bytes(key) for key in self._strips}
        layout_of = {key: [strip.n_bytes for strip in strips] for key, strips in self._strips.items()}
        slot_bytes = sizes.pop(SLOTS, 0)
        self.form = CacheForm(sizes, slot_bytes, f"{computed_by} {layout_of}")

    def read(self, key: int, rows: Sequence[int]) -> Bytes:
        """Return blocks of a window, or ``SLOTS``, as ``[len(rows), bytes]``, as the last step left them."""
        result = np.empty((len(rows), self._row_bytes(key)), np.uint8)
        begin = 0
        for some, staging in self._turns(key, rows):
            self._submit(key, some, staging, writes=False)
            room = result[begin : begin + len(some)]
            room.reshape(-1)[:] = staging.contents[: room.size]
            begin += len(some)
        return result

    def write(self, key: int, rows: Sequence[int], data: Bytes) -> None:
        """Write what ``read`` returned."""
        begin = 0
        for some, staging in self._turns(key, rows):
            part = data[begin : begin + len(some)]
            staging.contents[: part.size] = part.reshape(-1)
            self._submit(key, some, staging, writes=True)
            begin += len(some)

    def close(self) -> None:
        if self._staging:
            self._staging.close()
            self._staging = None

    def _turns(self, key: int, rows: Sequence[int]) -> Iterator[tuple[Sequence[int], Buffer]]:
        """Yield as many rows at a time as fit into the staging buffer."""
        size = self._row_bytes(key)
        if self._staging is None:
            most = max([STAGING_BYTES, *map(self._row_bytes, self._strips)])
            self._staging = self._device.new_buffer(most, host=True)
        n = self._staging.n_bytes // size
        for begin in range(0, len(rows), n):
            yield rows[begin : begin + n], self._staging

    def _submit(self, key: int, rows: Sequence[int], staging: Buffer, writes: bool) -> None:
        """Copy rows between the caches and the staging buffer, behind all submitted steps, and wait."""
        command = self._device.new_command_buffer()
        try:
            encoder = command.encoder()
            encoder.barrier()
            place = 0
            for row in rows:
                for strip in self._strips[key]:
                    _copy(encoder, strip, row, staging, place, writes)
                    place += strip.n_bytes
            encoder.barrier()
            encoder.end()
            command.commit_and_wait()
        finally:
            command.close()

    def _row_bytes(self, key: int) -> int:
        return sum(strip.n_bytes for strip in self._strips[key])


def _copy(encoder: Encoder, strip: _Strip, row: int, staging: Buffer, place: int, writes: bool) -> None:
    begin = strip.begin + row * strip.n_bytes
    if writes:
        encoder.copy_buffer(staging, place, strip.buffer, begin, strip.n_bytes)
    else:
        encoder.copy_buffer(strip.buffer, begin, staging, place, strip.n_bytes)


def _strips_of(layout: CacheLayout, place: BufferSlice, state: KVState, limits: Limits) -> Iterator[_Strip]:
    """Yield the strips of the keys and the values of an attention layer."""
    parts = [(layout.keys, 0), (layout.values, layout.v_offset)] if state.v_dim else [(layout.keys, 0)]
    for rows, offset in parts:
        n_rows = limits.block_size * state.n_head_kv // rows.heads
        yield _Strip(place.buffer, 4 * (place.offset + offset), 4 * n_rows * rows.words)
