"""Masks and biases of each sequence's next token for the kernels; the host may write them after the layers start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Restriction
from pumice_vulkan.device import Buffer, Device, Encoder
from pumice_vulkan.memory import BufferSlice

MAX_ADDED = 256  # maximum biases per sequence and step; invocations of shaders/adjust.comp


class Restrictions:
    """A row per picked token: whether there is a mask, the number of biases, pairs of token and float, then the mask.

    Stored on the device, and double-buffered in host memory: one buffer is written while the other is read.
    """

    def __init__(self, device: Device, n_rows: int, n_vocab: int) -> None:
        self.mask = 2 + 2 * MAX_ADDED  # index of the mask in a row
        self.stride = self.mask + -(-n_vocab // 32)
        n_bytes = 4 * n_rows * self.stride
        self._device_buffer = device.new_buffer(n_bytes)
        self._host_buffers: list[Buffer] = [device.new_buffer(n_bytes, host=True) for _ in range(2)]
        self.place = BufferSlice(self._device_buffer, 0, n_bytes // 4)
        self._masks = [list(self._rows(turn)[:, self.mask :].view(np.uint32)) for turn in range(2)]

    def write(self, restrictions: Sequence[Restriction], turn: int) -> None:
        """Write restrictions to the host buffer ``turn`` for the next commit."""
        if not restrictions:
            return
        rows = self._rows(turn)
        rows[: len(restrictions), :2] = [(item.mask is not None, len(item.biases)) for item in restrictions]
        for row, room, restriction in zip(rows, self._masks[turn], restrictions, strict=False):
            if restriction.biases:
                pairs = row[2 : 2 + 2 * len(restriction.biases)].reshape(-1, 2)
                pairs[:, 0] = [token for token, _ in restriction.biases]
                pairs[:, 1].view(np.float32)[:] = [value for _, value in restriction.biases]
            if restriction.mask is not None:
                np.copyto(room, restriction.mask)

    def record(self, encoder: Encoder, n_rows: int, turn: int) -> None:
        """Record the copy of the first ``n_rows`` rows to the device."""
        encoder.copy_buffer(self._host_buffers[turn], 0, self._device_buffer, 0, 4 * n_rows * self.stride)

    def close(self) -> None:
        for buffer in (self._device_buffer, *self._host_buffers):
            buffer.close()
        self._masks = []

    def _rows(self, turn: int) -> NDArray[np.int32]:
        return self._host_buffers[turn].contents.view(np.int32).reshape(-1, self.stride)
