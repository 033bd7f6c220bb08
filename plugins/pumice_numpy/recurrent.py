"""Operations with a recurrent state, one sequence after another. A sequence at position 0 starts from zeros."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Batch

F32Array = NDArray[np.float32]


def conv1d(x: F32Array, weight: F32Array, bias: F32Array | None, state: F32Array, batch: Batch) -> F32Array:
    y = np.empty_like(x)
    width = weight.shape[1]
    for rows, slot in _sequences(batch, state):
        history = np.concatenate([state[slot], x[rows]])  # [w - 1 + t, c]
        windows = np.lib.stride_tricks.sliding_window_view(history, width, axis=0)  # [t, c, w]
        y[rows] = np.einsum("tcw,cw->tc", windows, weight)
        state[slot] = history[len(history) - (width - 1) :]
    return y if bias is None else y + bias


def ssm_scan(
    x: F32Array,
    dt: F32Array,
    a: F32Array,
    b: F32Array,
    c: F32Array,
    d: F32Array,
    state: F32Array,
    batch: Batch,
) -> F32Array:
    y = np.empty_like(x)
    for rows, slot in _sequences(batch, state):
        h = state[slot]
        for t in range(rows.start, rows.stop):
            h = h * np.exp(dt[t, :, None] * a) + (dt[t] * x[t])[:, None] * b[t]
            y[t] = h @ c[t]
        state[slot] = h
    return y + d * x


def _sequences(batch: Batch, state: F32Array) -> Iterator[tuple[slice, int]]:
    """Rows and state slot of each sequence of the batch; zeroes the state of one that begins."""
    for s, slot in enumerate(batch.slots):
        rows = slice(int(batch.seq_starts[s]), int(batch.seq_starts[s + 1]))
        if batch.positions[rows.start] == 0:
            state[slot] = 0
        yield rows, int(slot)


RECURRENT_OPS = {"conv1d": conv1d, "ssm_scan": ssm_scan}
