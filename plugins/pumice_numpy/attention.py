"""Attention over the paged cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import (
    KV_TYPES,
    Arena,
    BackendError,
    Batch,
    KVState,
    Limits,
    dequantize,
    quantize,
    row_bytes,
)

F32Array = NDArray[np.float32]


class KVCache:
    """The keys and values of one layer: rows of encoded bytes ``[n_blocks, block_size, row_bytes]``."""

    def __init__(self, state: KVState, limits: Limits) -> None:
        self.type = KV_TYPES[limits.kv_type]
        self.block_size = limits.block_size
        self._heads = state.n_head_kv
        n_cells = limits.n_blocks[state.window] * limits.block_size
        self._k = self._allocate(state.name, n_cells, state.n_head_kv * state.k_dim)
        self._v = self._allocate(state.name, n_cells, state.n_head_kv * state.v_dim)
        self.nbytes = self._k.nbytes + self._v.nbytes

    def write(self, cells: NDArray[np.intp], k: F32Array, v: F32Array | None) -> None:
        """Store rows ``[t, heads, d]`` in ``cells [t]``."""
        self._k[cells] = quantize(k.reshape(len(k), -1), self.type)
        if v is not None:
            self._v[cells] = quantize(v.reshape(len(v), -1), self.type)

    def keys(self, cells: NDArray[np.intp]) -> F32Array:
        """``[len(cells), heads, d]``."""
        return self._read(self._k, cells)

    def values(self, cells: NDArray[np.intp]) -> F32Array:
        return self._read(self._v, cells)

    def _read(self, rows: NDArray[np.uint8], cells: NDArray[np.intp]) -> F32Array:
        return dequantize(rows[cells], self.type).reshape(len(cells), self._heads, -1)

    def _allocate(self, name: str, n_cells: int, n_values: int) -> NDArray[np.uint8]:
        try:
            width = row_bytes(self.type, n_values)
        except ValueError as error:
            raise BackendError(
                f"kv_type {self.type.name.lower()} needs rows of whole blocks, {name} has {n_values} values: use f16"
            ) from error
        return Arena(n_cells * width, f"KV cache {name}").view(0, (n_cells, width), np.uint8)


def attention(
    q: F32Array,
    k: F32Array,
    v: F32Array | None,
    cache: KVCache,
    sinks: F32Array | None,
    batch: Batch,
    scale: float,
    window: int,
    softcap: float,
    v_dim: int,
) -> F32Array:
    y = np.empty((*q.shape[:2], v_dim), np.float32)
    tables = batch.block_tables[window]
    for s in range(len(tables)):
        rows = slice(batch.seq_starts[s], batch.seq_starts[s + 1])
        queries = batch.positions[rows]
        cache.write(_cells(tables[s], queries, cache.block_size), k[rows], None if v is None else v[rows])
        oldest = max(0, queries[0] - window + 1) if window else 0
        context = np.arange(oldest, queries[-1] + 1)
        cells = _cells(tables[s], context, cache.block_size)
        keys = cache.keys(cells)
        values = keys[..., :v_dim] if v is None else cache.values(cells)
        distance = queries[:, None] - context
        visible = (distance >= 0) & (distance < window) if window else distance >= 0
        y[rows] = _attend(q[rows], keys, values, visible, scale, softcap, sinks)
    return y


def _cells(table: NDArray[np.int32], positions: NDArray[np.integer], block_size: int) -> NDArray[np.intp]:
    return table[positions // block_size].astype(np.intp) * block_size + positions % block_size


def _attend(
    q: F32Array,
    keys: F32Array,
    values: F32Array,
    visible: NDArray[np.bool_],
    scale: float,
    softcap: float,
    sinks: F32Array | None,
) -> F32Array:
    """``q [t, h, d]``, ``keys [c, g, d]``, ``values [c, g, e]``, ``visible [t, c]``: ``[t, h, e]``."""
    n_tokens, n_head, _ = q.shape
    n_head_kv = keys.shape[1]
    grouped = q.reshape(n_tokens, n_head_kv, n_head // n_head_kv, -1).transpose(1, 2, 0, 3)  # [g, h/g, t, d]
    scores = grouped @ keys.transpose(1, 2, 0)[:, None] * np.float32(scale)  # [g, h/g, t, c]
    if softcap:
        scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
    scores = np.where(visible, scores, np.float32(-np.inf))
    top = scores.max(axis=-1, keepdims=True)
    sink = None if sinks is None else sinks.reshape(n_head_kv, -1, 1, 1)
    if sink is not None:
        top = np.maximum(top, sink)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    y = (weights / total) @ values.transpose(1, 0, 2)[:, None]  # [g, h/g, t, e]
    return y.transpose(2, 0, 1, 3).reshape(n_tokens, n_head, -1)
