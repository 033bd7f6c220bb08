"""Attention over the paged cache, over the step alone, or over keys stored by another graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import dequantize, quantize, row_bytes
from pumice.plugin.unstable import KV_TYPES, Arena, Batch, KVState, Limits, mask_width

F32Array = NDArray[np.float32]
Positions = NDArray[np.integer]


class KVCache:
    """The keys and values of one layer as rows of encoded bytes ``[n_blocks, block_size, row_bytes]``."""

    def __init__(self, state: KVState, limits: Limits) -> None:
        self.type = KV_TYPES[limits.kv_type]
        self.block_size = limits.block_size
        self.is_memory = state.is_memory
        self.window = state.window
        self._heads = state.n_head_kv
        n_cells = limits.n_blocks[state.window] * limits.block_size
        self._k = self._allocate(state.name, n_cells, state.n_head_kv * state.k_dim)
        self._v = self._allocate(state.name, n_cells, state.n_head_kv * state.v_dim)
        self.nbytes = self._k.nbytes + self._v.nbytes

    @property
    def blocks(self) -> list[NDArray[np.uint8]]:
        """Views of the keys and the values, ``[n_blocks, block_size, row_bytes]``."""
        return [array.reshape(-1, self.block_size, array.shape[1]) for array in (self._k, self._v) if array.size]

    def write(self, table: NDArray[np.int32], positions: Positions, k: F32Array, v: F32Array | None) -> None:
        """Store rows ``[t, heads, d]`` of a sequence at its ``positions [t]``."""
        cells = self._cells(table, positions)
        self._k[cells] = quantize(k.reshape(len(k), -1), self.type)
        if v is not None:
            self._v[cells] = quantize(v.reshape(len(v), -1), self.type)

    def read(self, table: NDArray[np.int32], positions: Positions, v_dim: int) -> tuple[F32Array, F32Array]:
        """Return the keys and values ``[len(positions), heads, d]`` of a sequence."""
        cells = self._cells(table, positions)
        keys = self._decode(self._k, cells)
        return keys, self._decode(self._v, cells) if self._v.size else keys[..., :v_dim]

    def _cells(self, table: NDArray[np.int32], positions: Positions) -> NDArray[np.intp]:
        return table[positions // self.block_size].astype(np.intp) * self.block_size + positions % self.block_size

    def _decode(self, rows: NDArray[np.uint8], cells: NDArray[np.intp]) -> F32Array:
        return dequantize(rows[cells], self.type).reshape(len(cells), self._heads, -1)

    def _allocate(self, name: str, n_cells: int, n_values: int) -> NDArray[np.uint8]:
        width = row_bytes(self.type, n_values)
        return Arena(n_cells * width, f"KV cache {name}").view(0, (n_cells, width), np.uint8)


@dataclass(frozen=True)
class Scores:
    """Conversion of scores to weights; see the operation ``attention``."""

    scale: float
    window: int
    chunk: int
    causal: bool
    softcap: float
    slopes: tuple[float, ...]
    bias: F32Array | None
    sinks: F32Array | None
    log_sum: bool

    def visible(self, queries: Positions, keys: Positions) -> NDArray[np.bool_]:
        """Return the mask ``[queries, keys]`` of the keys that each query attends to, by positions."""
        distance = queries[:, None] - keys
        if not self.causal and self.chunk:
            same: NDArray[np.bool_] = queries[:, None] // self.chunk == keys // self.chunk
            return same
        if not self.causal:
            return np.abs(distance) <= self.window // 2 if self.window else np.ones(distance.shape, bool)
        visible = distance >= 0
        if self.window:
            visible &= distance < self.window
        if self.chunk:
            visible &= queries[:, None] // self.chunk == keys // self.chunk
        return visible

    def oldest(self, first_query: int) -> int:
        """Return the first position that queries from ``first_query`` on attend to."""
        if self.chunk:
            return first_query // self.chunk * self.chunk
        if not self.causal:
            return max(0, first_query - self.window // 2) if self.window else 0
        return max(0, first_query - self.window + 1) if self.window else 0


def attention(
    q: F32Array,
    k: F32Array | None,
    v: F32Array | None,
    sinks: F32Array | None,
    bias: F32Array | None,
    mask: F32Array | None,
    state: KVCache | None,
    batch: Batch,
    scale: float,
    window: int,
    softcap: float,
    v_dim: int,
    causal: bool,
    chunk: int,
    slopes: tuple[float, ...],
    log_sum: bool,
    cache: object,
) -> F32Array:
    v_dim = v.shape[-1] if v is not None else v_dim
    how = Scores(scale, window, chunk, causal, softcap, slopes, bias, sinks, log_sum)
    results = []
    for s in range(len(batch.slots)):
        rows = slice(batch.seq_starts[s], batch.seq_starts[s + 1])
        queries = batch.positions[rows]
        if state is None:
            assert k is not None
            context, keys = queries, k[rows]
            values = keys[..., :v_dim] if v is None else v[rows]
        elif state.is_memory:
            assert batch.memory is not None
            context = np.arange(batch.memory.lengths[s])
            keys, values = state.read(batch.memory.block_tables[s], context, v_dim)
        else:
            table = batch.block_tables[state.window]
            if k is not None:
                state.write(table[s], queries, k[rows], None if v is None else v[rows])
            context = np.arange(how.oldest(int(queries[0])), queries[-1] + 1)
            keys, values = state.read(table[s], context, v_dim)
        added = None if mask is None else mask[rows][:, context]
        results.append(_attend(q[rows], keys, values, queries, context, how, added))
    return np.concatenate(results)


def choose_positions(
    q: F32Array,
    k: F32Array,
    weights: F32Array,
    state: KVCache,
    batch: Batch,
    n_chosen: int,
    n_ctx: int,
    pool: int,
    n_local: int,
) -> F32Array:
    mask = np.zeros((len(q), mask_width(n_ctx)), np.float32)
    for s, table in enumerate(batch.block_tables[state.window]):
        for row in range(batch.seq_starts[s], batch.seq_starts[s + 1]):
            position = batch.positions[row : row + 1]
            state.write(table, position, k[row : row + 1], None)
            keys, _ = state.read(table, np.arange(position[0] + 1), 0)
            scored = keys[:, 0] if n_local else keys[pool - 1 :: pool, 0]
            scores = weights[row] @ np.maximum(q[row] @ scored.T, 0)
            if n_local:
                scores = np.maximum.reduceat(scores, np.arange(0, len(keys), pool))
                scores[-n_local:] = np.inf
            if len(scores) > n_chosen:
                hidden = np.repeat(scores < np.sort(scores)[-n_chosen], pool)[: len(keys)]
                mask[row, : len(hidden)] = np.where(hidden, np.float32(-1e30), 0)
    return mask


def kv_store(k: F32Array, v: F32Array | None, state: KVCache, batch: Batch, name: str, window: int) -> F32Array:
    for s, table in enumerate(batch.block_tables[state.window]):
        rows = slice(batch.seq_starts[s], batch.seq_starts[s + 1])
        state.write(table, batch.positions[rows], k[rows], None if v is None else v[rows])
    return np.empty((len(k), 0), np.float32)


def _attend(
    q: F32Array,
    keys: F32Array,
    values: F32Array,
    queries: Positions,
    context: Positions,
    how: Scores,
    added: F32Array | None,
) -> F32Array:
    """Attend with queries at positions ``queries [t]`` to keys and values at positions ``context [c]``.

    Args:
        q: ``[t, h, d]``.
        keys: ``[c, g, d]``.
        values: ``[c, g, e]``.
        added: added to the scores.

    Returns:
        ``[t, h, e]``, or ``[t, h, e + 1]`` with the logarithm of the sum.
    """
    n_tokens, n_head, _ = q.shape
    n_head_kv = keys.shape[1]
    grouped = q.reshape(n_tokens, n_head_kv, n_head // n_head_kv, -1).transpose(1, 2, 0, 3)  # [g, h/g, t, d]
    scores = grouped @ keys.transpose(1, 2, 0)[:, None] * np.float32(how.scale)  # [g, h/g, t, c]
    if how.softcap:
        scores = np.float32(how.softcap) * np.tanh(scores / np.float32(how.softcap))
    distance = context - queries[:, None]
    if how.slopes:
        slopes = np.array(how.slopes, np.float32).reshape(n_head_kv, -1, 1, 1)
        scores = scores - slopes * np.abs(distance).astype(np.float32)
    if how.bias is not None:
        reach = how.bias.shape[1] // 2
        table = how.bias[:, np.clip(distance, -reach, reach) + reach]  # [h, t, c]
        scores = scores + table.reshape(n_head_kv, -1, *distance.shape)
    if added is not None:
        scores = scores + added
    scores = np.where(how.visible(queries, context), scores, np.float32(-np.inf))
    top = scores.max(axis=-1, keepdims=True)
    sink = None if how.sinks is None else how.sinks.reshape(n_head_kv, -1, 1, 1)
    if sink is not None:
        top = np.maximum(top, sink)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    y = (weights / total) @ values.transpose(1, 0, 2)[:, None]  # [g, h/g, t, e]
    if how.log_sum:
        y = np.concatenate([y, top + np.log(total)], axis=-1)
    return y.transpose(2, 0, 1, 3).reshape(n_tokens, n_head, -1)
