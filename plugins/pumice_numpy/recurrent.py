"""Operations with a recurrent state, one sequence after another. A sequence at position 0 starts from zeros."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Batch

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


def linear_attention(
    q: F32Array,
    k: F32Array,
    v: F32Array,
    decay: F32Array,
    beta: F32Array | None,
    a: F32Array | None,
    b: F32Array | None,
    state: F32Array,
    batch: Batch,
    before: bool,
    tiled: bool,
) -> F32Array:
    y = np.empty_like(v)
    n_heads, n_key_heads = v.shape[1], k.shape[1]
    heads = np.arange(n_heads)
    heads = heads % n_key_heads if tiled else heads // (n_heads // n_key_heads)
    q, k = q[:, heads], k[:, heads]
    decay = np.broadcast_to(decay, v.shape[:2]) if decay.ndim == 1 else decay
    decay = decay[:, :, None, None] if decay.ndim == 2 else decay[..., None]
    for rows, slot in _sequences(batch, state):
        s = state[slot]  # [h, k_dim, v_dim]
        for t in range(rows.start, rows.stop):
            old, s = s, s * decay[t]
            added = v[t] if beta is None else beta[t, :, None] * (v[t] - _read(s, k[t]))
            more = 0 if a is None or b is None else b[t, :, :, None] * _read(s, a[t])[:, None]
            s = s + k[t, :, :, None] * added[:, None] + more
            y[t] = _read(old if before else s, q[t])
        state[slot] = s
    return y


def _read(s: F32Array, q: F32Array) -> F32Array:
    """Multiply a row of each head ``[h, k_dim]`` by the states: ``[h, v_dim]``."""
    return np.matmul(q[:, None], s)[:, 0]


def _sequences(batch: Batch, state: F32Array) -> Iterator[tuple[slice, int]]:
    """Yield rows and state slot of each sequence of the batch; clear the states of sequences that start."""
    for s, slot in enumerate(batch.slots):
        rows = slice(int(batch.seq_starts[s]), int(batch.seq_starts[s + 1]))
        if batch.positions[rows.start] == 0:
            state[slot] = 0
        yield rows, int(slot)


RECURRENT_OPS = {"conv1d": conv1d, "ssm_scan": ssm_scan, "linear_attention": linear_attention}
