"""Attention over the paged cache, over the step alone, or over keys stored by another graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Batch, KVState, Node, mask_width
from pumice_mlx import paged
from pumice_mlx.kv_cache import KVCache, Span
from pumice_mlx.step import Evaluation, Run, StepArrays

Ints = NDArray[np.integer]
HIDDEN = -1e30  # score of a masked position


@dataclass(frozen=True)
class Context:
    """The keys for the queries of a run: cells of ``blocks [n, b]``, at ``positions [n, c]``.

    A negative position marks a cell without a key for its sequence. ``key`` identifies the context within a step, and
    ``of`` returns that of another step.
    """

    key: tuple[Hashable, ...]
    blocks: Ints
    positions: Ints
    of: Callable[[StepArrays], Context]

    def blocks_on(self, step: StepArrays) -> mx.array:
        of = self.of
        return step.array((*self.key, "blocks"), lambda step: of(step).blocks)


@dataclass(frozen=True)
class Scores:
    """Conversion of scores to weights; see the operation ``attention``."""

    scale: float
    window: int
    chunk: int
    causal: bool
    softcap: float
    slopes: tuple[float, ...]
    bias: mx.array | None
    sinks: mx.array | None
    log_sum: bool

    @property
    def is_plain(self) -> bool:
        """Return True if MLX's attention needs no mask beyond the visible positions."""
        return not (self.softcap or self.slopes or self.log_sum or self.bias is not None)

    def oldest(self, queries: Ints) -> Ints:
        """Return the first position that each query attends to."""
        if self.chunk:
            return queries // self.chunk * self.chunk
        return np.maximum(0, queries - self.window + 1) if self.window else np.zeros_like(queries)

    def visible(self, queries: Ints, keys: Ints) -> NDArray[np.bool_]:
        """Return the mask ``[n, t, c]`` of the keys ``[n, c]`` that each query ``[n, t]`` attends to, by positions."""
        distance = queries[:, :, None] - keys[:, None]
        if not self.causal:
            near = np.abs(distance) <= self.window // 2 if self.window else np.True_
            if self.chunk:
                near = queries[:, :, None] // self.chunk == keys[:, None] // self.chunk
            return near & (keys[:, None] >= 0)
        visible = (distance >= 0) & (keys[:, None] >= 0)
        if self.window:
            visible &= distance < self.window
        if self.chunk:
            visible &= queries[:, :, None] // self.chunk == keys[:, None] // self.chunk
        return visible


def attention(
    q: mx.array,
    k: mx.array | None,
    v: mx.array | None,
    sinks: mx.array | None,
    bias: mx.array | None,
    mask: mx.array | None,
    evaluation: Evaluation,
    scale: float,
    window: int,
    softcap: float,
    v_dim: int,
    causal: bool,
    chunk: int,
    slopes: tuple[float, ...],
    log_sum: bool,
    cache: object,
) -> mx.array:
    how = Scores(scale, window, chunk, causal, softcap, slopes, bias, sinks, log_sum)
    state: KVCache | None = evaluation.state
    if evaluation.step.alike and can_attend_paged(evaluation.node, state, evaluation.type):
        assert state is not None
        return _attend_paged(q, None if k is None or v is None else (k, v), state, how, evaluation)
    if state is not None and k is not None:
        kv_store(k, v, evaluation, "", 0)
    results = []
    for run in _runs(evaluation, state):
        if state is not None and mask is None and not evaluation.step.alike and _sees_all_before(run, how):
            queries = evaluation.rows_of(q, run).swapaxes(1, 2).astype(evaluation.type)
            results.append((run, _attend_to_all(queries, run, how, v_dim, evaluation).swapaxes(1, 2)))
            continue
        context = _context(evaluation.step, run, state, how)
        if state is None:
            assert k is not None
            keys, values = (None if x is None else evaluation.rows_of(x, run).swapaxes(1, 2) for x in (k, v))
            assert keys is not None
            keys, values = (
                keys.astype(evaluation.type),
                (keys[..., :v_dim] if values is None else values).astype(evaluation.type),
            )
        else:
            n = context.positions.shape[1]  # of a memory fewer than its blocks have
            blocks = context.blocks_on(evaluation.step)
            keys, values = (x[:, :, :n] for x in state.read(blocks, v_dim, evaluation.type))
        queries = evaluation.rows_of(q, run).swapaxes(1, 2).astype(evaluation.type)
        added = None if mask is None else _of_context(evaluation.rows_of(mask, run), context, evaluation)
        y = _attend(queries, keys, values, run, context, how, added, evaluation)
        results.append((run, y.swapaxes(1, 2)))
    return evaluation.joined(results)


def can_attend_alone(node: Node) -> bool:
    """Return True if the token of a lone sequence attends to all keys of its window by MLX's attention."""
    attrs, others = node.attrs, ("bias", "mask")
    is_plain = not (attrs["softcap"] or attrs["slopes"] or attrs["log_sum"]) and attrs["causal"]
    is_cached = isinstance(node.state, KVState) and not node.state.is_memory
    return is_plain and is_cached and not any(name in node.inputs for name in others)


def can_attend_paged(node: Node, state: KVCache | None, type: mx.Dtype) -> bool:
    """Return True if a kernel attends to the cache with one token of each sequence, in a type of products."""
    if not paged.is_available() or state is None or state.plain is None or not can_attend_alone(node):
        return False
    keys, _ = state.plain
    n_heads, width = (int(size) for size in node.output.shape[1:])
    heads = paged.Heads(state.n_heads, n_heads // state.n_heads, width)
    return keys.shape[-1] == state.n_heads * width and paged.works(heads, type, keys.dtype, state.block_size)


def _attend_paged(
    q: mx.array, new: tuple[mx.array, mx.array] | None, state: KVCache, how: Scores, evaluation: Evaluation
) -> mx.array:
    """Attend with the only token ``[n, h, d]`` of each sequence, whose key and value are stored."""
    step, reach, size = evaluation.step, how.window or how.chunk, state.block_size

    def table(step: StepArrays) -> Ints:
        n_blocks = int(step.batch.positions.max()) // size + 1
        n_columns = max(1 << (n_blocks - 1).bit_length(), -(-paged.LEAST_ROOM // size))
        blocks = step.batch.block_tables[state.window][:, :n_columns]
        padded = np.zeros((len(blocks), n_columns), np.int32)
        np.maximum(blocks, 0, out=padded[:, : blocks.shape[1]])
        return padded

    def places(step: StepArrays) -> Ints:
        last = step.batch.positions
        cells = _blocks(step, state) * size + last % size
        return np.stack([cells, how.oldest(last), last], axis=1).astype(np.int32)

    key = (state.window, size)
    where = paged.Places(
        step.array(("table", *key), table), step.array(("places", *key, how.window, how.chunk), places), size, reach
    )
    assert state.plain is not None
    q = q.astype(evaluation.type)
    return paged.attend(q, new, how.sinks, state.plain, state.arrived, where, how.scale, evaluation.turn)


def stored(q: mx.array, k: mx.array | None, v: mx.array | None, evaluation: Evaluation) -> mx.array:
    """Store the key and value of a lone token; return its queries ``[1, h, 1, d]`` for ``attend_alone``."""
    if k is not None:
        kv_store(k, v, evaluation, "", 0)
    return q.reshape(1, -1, 1, q.shape[-1]).astype(evaluation.type)


def attend_alone(q: mx.array, sinks: mx.array | None, evaluation: Evaluation) -> mx.array:
    """Return the attention ``[1, h, d]`` of a lone token with queries ``[1, h, 1, d]``, whose key is stored."""
    attrs = evaluation.node.attrs
    how = Scores(attrs["scale"], attrs["window"], attrs["chunk"], True, 0.0, (), None, sinks, False)
    (run,) = evaluation.step.runs()
    y = _attend_to_all(q, run, how, attrs["v_dim"], evaluation)
    return y.reshape(1, y.shape[1], -1)


def _attend_to_all(q: mx.array, run: Run, how: Scores, v_dim: int, evaluation: Evaluation) -> mx.array:
    """Attend with queries ``[1, h, t, d]`` of a sequence to all stored keys from the oldest one: ``[1, h, t, e]``."""
    state: KVCache = evaluation.state
    key = ("span", run.key, state.window, state.block_size, how.window, how.chunk)
    span = evaluation.step.kept(key, lambda: _span(evaluation.step.batch, run, state, how))
    keys, values = state.read_span(span, v_dim, evaluation.type)
    return _fused(q, keys, values, "causal" if run.length > 1 else None, how)


def _span(batch: Batch, run: Run, state: KVCache, how: Scores) -> Span:
    """Return the cells from the oldest position that a sequence's first token sees to its last token's."""
    oldest = int(how.oldest(run.positions[0, :1])[0])
    last, size = int(run.positions[0, -1]), state.block_size
    (seq,) = run.seqs
    blocks = batch.block_tables[state.window][seq, oldest // size : last // size + 1]
    return Span(blocks, oldest % size, last - oldest + 1, size)


def kv_store(k: mx.array, v: mx.array | None, evaluation: Evaluation, name: str, window: int) -> mx.array:
    state: KVCache = evaluation.state

    def cells(step: StepArrays) -> Ints:
        size = state.block_size
        return (_blocks(step, state) * size + step.batch.positions % size).astype(np.int32)

    state.write(evaluation.step.array(("cells", state.window, state.block_size), cells), k, v)
    return mx.zeros((len(k), 0))


def last_block(step: StepArrays, state: KVCache) -> int:
    """Return the last block that a step stores keys in."""
    return step.kept(("last block", state.window, state.block_size), lambda: int(_blocks(step, state).max(initial=0)))


def _blocks(step: StepArrays, state: KVCache) -> Ints:
    """Return the block of the key of each token."""

    def blocks() -> Ints:
        batch, n_seqs = step.batch, len(step.batch.slots)
        lengths = np.diff(batch.seq_starts)
        seqs = np.arange(n_seqs) if len(batch.tokens) == n_seqs else np.repeat(np.arange(n_seqs), lengths)
        numbers: Ints = batch.block_tables[state.window][seqs, batch.positions // state.block_size]
        return numbers

    return step.kept(("blocks", state.window, state.block_size), blocks)


def choose_positions(
    q: mx.array,
    k: mx.array,
    weights: mx.array,
    evaluation: Evaluation,
    n_chosen: int,
    n_ctx: int,
    pool: int,
    n_local: int,
) -> mx.array:
    kv_store(k, None, evaluation, "", 0)
    how = Scores(1.0, 0, 0, True, 0.0, (), None, None, False)
    results = []
    for run in evaluation.step.runs():
        context = _context(evaluation.step, run, evaluation.state, how)
        keys = evaluation.state.read(context.blocks_on(evaluation.step), 0, mx.float32)[0][:, 0]  # [n, c, d]
        scores = mx.maximum(evaluation.rows_of(q, run) @ keys[:, None].swapaxes(-1, -2), 0)  # [n, t, h, c]
        scores = (evaluation.rows_of(weights, run)[:, :, None] @ scores)[:, :, 0]  # [n, t, c]
        hidden = _hidden(scores, evaluation.positions_of(run)[..., None], n_chosen, pool, n_local)
        width = mask_width(n_ctx)
        hidden = mx.pad(hidden[..., :width], [(0, 0), (0, 0), (0, max(0, width - hidden.shape[-1]))])
        results.append((run, mx.where(hidden, mx.array(HIDDEN), mx.array(0.0))))
    return evaluation.joined(results)


def _hidden(scores: mx.array, query: mx.array, n_chosen: int, pool: int, n_local: int) -> mx.array:
    """Return the mask of positions ``[n, t, c]`` to hide, from their scores and that of the token ``[n, t, 1]``."""
    n_pools = -(-scores.shape[-1] // pool)
    numbers = mx.arange(n_pools * pool)
    low = mx.array(-mx.inf)
    scores = mx.pad(scores, [(0, 0), (0, 0), (0, n_pools * pool - scores.shape[-1])])
    pooled = mx.where(numbers <= query, scores, low).reshape(*scores.shape[:2], n_pools, pool)
    last = query // pool  # the token's pool
    of_pool = numbers[::pool] // pool
    if n_local:
        value = mx.max(pooled, axis=-1)
        value = mx.where((of_pool <= last) & (of_pool > last - n_local), mx.array(mx.inf), value)
        n_scored = last + 1
    else:
        value = pooled[..., -1]  # -inf for an incomplete pool
        n_scored = (query + 1) // pool
    n_kept = min(n_chosen, n_pools)
    threshold = mx.sort(value, axis=-1)[..., n_pools - n_kept : n_pools - n_kept + 1]
    hidden = (value < threshold) & (n_scored > n_chosen) & (of_pool < n_scored)
    return mx.repeat(hidden, pool, axis=-1)


def _runs(evaluation: Evaluation, state: KVCache | None) -> list[Run]:
    """Return the runs of a step; sequences are separate where they attend to keys stored by another graph."""
    runs = list(evaluation.step.runs())
    if state is None or not state.is_memory:
        return runs
    return [part for run in runs for part in run.split()]


def _context(step: StepArrays, run: Run, state: KVCache | None, how: Scores) -> Context:
    """Return the cells for the queries of a run, from the block of the oldest position to that of the last."""
    if state is None:
        key: tuple[Hashable, ...] = ("step", run.key)
    elif state.is_memory:
        key = ("memory", run.key, int(run.seqs[0]))
    else:
        key = ("cache", run.key, state.window, state.block_size, how.window, how.chunk)

    def of(step: StepArrays) -> Context:
        return step.kept(key, lambda: Context(key, *_cells(step, step.run(run.key), state, how), of))

    if state is None or not state.is_memory:
        return of(step)
    context = Context(key, *_cells(step, run, state, how), lambda _: context)  # of a part of a run of this step
    return context


def _cells(step: StepArrays, run: Run, state: KVCache | None, how: Scores) -> tuple[Ints, Ints]:
    """Return the blocks and the positions of a context."""
    batch = run.batch
    if state is None:
        return np.zeros((len(run.seqs), 0), np.int32), run.positions
    size = state.block_size
    if state.is_memory:
        assert batch.memory is not None
        (seq,) = run.seqs
        n = int(batch.memory.lengths[seq])
        return batch.memory.block_tables[seq : seq + 1, : -(-n // size)], np.arange(n)[None]
    first = how.oldest(run.positions[:, 0]) // size
    last = run.positions[:, -1] // size
    n_blocks = int((last - first).max()) + 1
    numbers = first[:, None] + np.arange(_rounded(n_blocks) if step.alike else n_blocks)
    table = batch.block_tables[state.window]
    exists = numbers <= last[:, None]
    blocks = table[run.seqs[:, None], np.where(exists, numbers, last[:, None])]
    positions = (numbers[:, :, None] * size + np.arange(size)).reshape(len(run.seqs), -1)
    held = positions <= run.positions[:, -1:]
    return np.maximum(blocks, 0).astype(np.int32), np.where(held, positions, -1)


def _rounded(n: int) -> int:
    """Round up to one of few sizes, for each of which a step is compiled: at most a quarter more."""
    step = 1 << max((n - 1).bit_length() - 3, 0)
    return -(-n // step) * step


def _of_context(mask: mx.array, context: Context, evaluation: Evaluation) -> mx.array:
    """Return the columns ``[n, t, c]`` of a mask that belong to the context."""
    columns = evaluation.step.array(
        (*context.key, "columns"), lambda step: np.maximum(context.of(step).positions, 0).astype(np.int32)
    )
    columns = mx.broadcast_to(columns[:, None], (*mask.shape[:2], columns.shape[-1]))
    return mx.take_along_axis(mask, columns, axis=-1)


def _attend(
    q: mx.array,
    keys: mx.array,
    values: mx.array,
    run: Run,
    context: Context,
    how: Scores,
    added: mx.array | None,
    evaluation: Evaluation,
) -> mx.array:
    """Attend with ``q [n, h, t, d]`` to ``keys [n, g, c, d]`` and ``values [n, g, c, e]``; return ``[n, h, t, e]``."""
    if added is None and context.key[0] == "step" and not evaluation.step.alike and _sees_all_before(run, how):
        return _fused(q, keys, values, "causal" if run.length > 1 else None, how)
    key = (*context.key, how.causal, how.window, how.chunk)
    of, masked = context.of, replace(how, bias=None, sinks=None)

    def mask_of(step: StepArrays) -> NDArray[np.bool_]:
        queries = run.positions if context.key[0] == "memory" else step.run(run.key).positions
        return masked.visible(queries, of(step).positions)[:, None]

    visible = evaluation.step.array((*key, "visible"), mask_of)
    terms = [] if added is None else [added[:, None]]
    if how.slopes or how.bias is not None:
        distance = evaluation.step.array(
            (*key, "distance"), lambda step: _distance(step.run(run.key).positions, of(step).positions)
        )
        terms += _of_distance(distance, how)
    if not how.softcap and not how.log_sum:
        mask = mx.where(visible, sum(terms[1:], terms[0]), mx.array(-mx.inf)).astype(q.dtype) if terms else visible
        return _fused(q, keys, values, mask, how)
    return _attend_by_parts(q, keys, values, visible, how, terms)


def _fused(q: mx.array, keys: mx.array, values: mx.array, mask: mx.array | str | None, how: Scores) -> mx.array:
    sinks = None if how.sinks is None else how.sinks.astype(q.dtype)
    return mx.fast.scaled_dot_product_attention(q, keys, values, scale=how.scale, mask=mask, sinks=sinks)


def _sees_all_before(run: Run, how: Scores) -> bool:
    """Return True for one sequence whose tokens attend to every position from the oldest one to their own."""
    reach = how.window or how.chunk
    n_positions = run.positions[0, -1] + 1
    sees_all = run.length == 1 or not reach or n_positions <= reach
    return how.is_plain and how.causal and len(run.seqs) == 1 and sees_all


def _distance(queries: Ints, keys: Ints) -> Ints:
    return (keys[:, None] - queries[:, :, None])[:, None].astype(np.int32)


def _of_distance(distance: mx.array, how: Scores) -> list[mx.array]:
    """Return the biases by distance ``[n, 1, t, c]`` of keys from queries: ``[n, h, t, c]`` each."""
    terms = []
    if how.slopes:
        slopes = mx.array(how.slopes)[:, None, None]
        terms.append(-slopes * mx.abs(distance).astype(mx.float32))
    if how.bias is not None:
        reach = how.bias.shape[1] // 2
        terms.append(how.bias[:, mx.clip(distance[:, 0], -reach, reach) + reach].swapaxes(0, 1))
    return terms


def _attend_by_parts(
    q: mx.array, keys: mx.array, values: mx.array, visible: mx.array, how: Scores, terms: list[mx.array]
) -> mx.array:
    """Like ``scaled_dot_product_attention``, with soft caps, and optionally the logarithms of the sums."""
    n, n_head, n_tokens, _ = q.shape
    n_groups = keys.shape[1]
    grouped = q.reshape(n, n_groups, n_head // n_groups, n_tokens, -1)
    scores = (grouped @ keys[:, :, None].swapaxes(-1, -2)).astype(mx.float32) * how.scale
    scores = scores.reshape(n, n_head, n_tokens, -1)
    if how.softcap:
        scores = how.softcap * mx.tanh(scores / how.softcap)
    for term in terms:
        scores = scores + term
    scores = mx.where(visible, scores, mx.array(-mx.inf))
    total = mx.logsumexp(scores, axis=-1, keepdims=True)
    if how.sinks is not None:
        total = mx.logaddexp(total, how.sinks[:, None, None])
    weights = mx.exp(scores - total).astype(q.dtype)
    y = weights.reshape(n, n_groups, n_head // n_groups, n_tokens, -1) @ values[:, :, None]
    y = y.reshape(n, n_head, n_tokens, -1)
    return mx.concatenate([y.astype(mx.float32), total], axis=-1) if how.log_sum else y


ATTENTION_OPS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "choose_positions": choose_positions,
    "kv_store": kv_store,
}
