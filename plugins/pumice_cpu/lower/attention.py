"""The rule for attention: store keys and values, attend, and merge if one token's positions were split."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pumice.plugin import N_SEQS, Tensor
from pumice.plugin.unstable import KV_TYPES, KVState, Limits, Node
from pumice_cpu.isa import current
from pumice_cpu.kv_cache import (
    CELLS,
    CHUNK,
    FLOATS,
    PART,
    Cells,
    KVCache,
    can_hold,
    memory_scratch_at,
    scratch_at,
    step_scratch_at,
)
from pumice_cpu.lower.rule import (
    BLOCK_TABLES,
    MEMORY_LENGTHS,
    MEMORY_TABLE,
    POSITIONS,
    SEQ_STARTS,
    Lowering,
    Rule,
)
from pumice_cpu.runtime import float_bits

_ALL_POSITIONS = 1 << 40
COMMON_TYPES = ("f16", "q8_0")  # cache types
_LOG2_E = 1.4426950408889634


def _choose_positions(lowering: Lowering, node: Node) -> None:
    q, k, weights = node.operands()
    cells = _cells(lowering, node)
    _store(lowering, cells, k, cells.cache.keys)
    n_head, k_dim = int(q.shape[1]), int(q.shape[2])
    whole_tiles = "tiles" if cells.block_size % CELLS == 0 else "any"
    lowering.add(
        f"indexer.choose:{cells.kv_type}:{whole_tiles}",
        **cells.where,
        q=q,
        weights=weights,
        y=node.output,
        keys=cells.cache.keys.layout,
        n_head=n_head,
        width=int(node.output.shape[-1]),
        n_chosen=node.attrs["n_chosen"],
        pool=node.attrs["pool"],
        n_local=node.attrs["n_local"],
        scratch=lowering.scratch_memory("index keys", 64 * (k_dim + 16) * lowering.pool.n_threads),
    )


def _claims(node: Node, limits: Limits) -> bool:
    if "mask" in node.inputs and (node.attrs["slopes"] or "bias" in node.inputs):
        return False
    return node.state is None or can_hold(node.state_of(KVState), limits)


@dataclass(frozen=True)
class Attended:
    """Location of the keys and values of an attention node: the cache, and kernel arguments that select its cells."""

    cache: KVCache
    kv_type: str
    block_size: int
    where: dict[str, int]  # arguments that locate the step's own tokens
    lengths: int = 0  # address of the lengths stored by another graph


def _attention(lowering: Lowering, node: Node) -> None:
    k, v = node.inputs.get("k"), node.inputs.get("v")
    cells = _cells(lowering, node)
    if k is not None:
        _store(lowering, cells, k, cells.cache.keys)
    if v is not None:
        assert cells.cache.values is not None
        _store(lowering, cells, v, cells.cache.values, alongside=k is not None)
    is_of_step = node.state is None and _has_many_registers() and not lowering.is_single(node.inputs["q"])
    if is_of_step and _is_plain(node, "qkv"):
        _attend_to_step(lowering, node, cells)
    elif cells.lengths and _is_plain_memory(node, cells):
        _attend_to_memory(lowering, node, cells)
    else:
        _attend(lowering, node, cells)


def _is_plain_memory(node: Node, cells: Attended) -> bool:
    """Return True if kernels/attention_memory.py has all that a node asks for."""
    keys, values = cells.cache.keys, cells.cache.values
    sees_all = _mask(node) == "near" and not _window(node)
    has_tiles = cells.kv_type in FLOATS and cells.block_size % CELLS == 0
    has_lanes = values is not None and keys.dim % 16 == values.dim % 16 == 0
    return _is_plain(node, "q") and sees_all and has_tiles and has_lanes


def _attend_to_memory(lowering: Lowering, node: Node, cells: Attended) -> None:
    keys, values = cells.cache.keys, cells.cache.values
    assert values is not None
    size = memory_scratch_at(0, keys.dim, values.dim).end
    _attend_plainly(lowering, node, cells, f"attention_memory.attend:{cells.kv_type}", size, lengths=cells.lengths)


def _is_plain(node: Node, inputs: str) -> bool:
    """Return True if a node has these inputs alone, and asks for nothing that kernels of few forms lack."""
    return set(node.inputs) == set(inputs) and not any(node.attrs[name] for name in ("softcap", "slopes", "log_sum"))


def _attend_to_step(lowering: Lowering, node: Node, cells: Attended) -> None:
    v_dim = int(node.output.shape[2])
    size = step_scratch_at(0, cells.cache.keys.dim, v_dim).end
    kernel = f"attention_step.attend:{_mask(node)}"
    _attend_plainly(lowering, node, cells, kernel, size, window=_window(node), v_dim=v_dim)


def _attend_plainly(lowering: Lowering, node: Node, cells: Attended, kernel: str, scratch: int, **more: int) -> None:
    """Add a kernel that attends in one form alone; ``scratch``: bytes of a thread."""
    q, keys, values = node.inputs["q"], cells.cache.keys, cells.cache.values
    assert values is not None
    n_head = int(q.shape[1])
    lowering.add(
        kernel,
        **cells.where,
        **more,
        q=q,
        y=node.output,
        n_head=n_head,
        group=n_head // cells.cache.n_head_kv,
        scale=float_bits(node.attrs["scale"] * _LOG2_E),
        keys=keys.layout,
        values=values.layout,
        part_size=_ALL_POSITIONS,
        scratch=lowering.scratch_memory("attention", scratch * lowering.pool.n_threads),
    )


def _mask(node: Node) -> str:
    """Return the key of SEEN (kernels/attention_parts.py) for the positions that a node's queries see."""
    causal = node.attrs["causal"]
    if node.attrs["chunk"]:
        return "chunk" if causal else "whole_chunk"
    return "causal" if causal else "near"


def _window(node: Node) -> int:
    return int(node.attrs["chunk"] or node.attrs["window"])


def _attend(lowering: Lowering, node: Node, cells: Attended) -> None:
    q, sinks, attrs = node.inputs["q"], node.inputs.get("sinks"), node.attrs
    keys, values = cells.cache.keys, cells.cache.values
    n_head, v_dim = int(q.shape[1]), int(node.output.shape[2]) - attrs["log_sum"]
    mask, window = _mask(node), _window(node)
    one_token = lowering.is_single(q)
    n_rows = _rows_at_once(one_token, node.state is not None)
    span = 16 * _width(n_rows)  # columns that registers hold at once
    v_width = -(-v_dim // span) * span
    scale, softcap = attrs["scale"], attrs["softcap"]
    bias = _bias(lowering, node, n_head)
    scores = "capped" if softcap else "plain"
    if bias["bias"]:
        scores += "_chosen" if "mask" in node.inputs else "_biased"
    whole_tiles = "tiles" if cells.block_size % CELLS == 0 else "any"
    is_split = one_token and mask == "causal"
    split = _split(lowering, window, n_head, v_width) if is_split else {"part_size": _ALL_POSITIONS, "partial": 0}
    lowering.add(
        f"attention.attend:{cells.kv_type}:{_registers(n_rows)}:{whole_tiles}:{scores}:{mask}",
        **cells.where,
        **split,
        **bias,
        q=q,
        y=node.output,
        sinks=0 if sinks is None else sinks,
        n_head=n_head,
        group=n_head // cells.cache.n_head_kv,
        scale=float_bits(scale / softcap if softcap else scale * _LOG2_E),
        cap=float_bits(softcap * _LOG2_E),
        window=window,
        keys=keys.layout,
        values=values.layout if values else np.zeros_like(keys.layout),
        v_dim=v_dim,
        log_sum=int(attrs["log_sum"]),
        lengths=cells.lengths,
        scratch=lowering.scratch_memory(
            "attention", scratch_at(0, n_rows, keys.dim, v_dim).end * lowering.pool.n_threads + 1024
        ),
        at_once=n_rows,
    )
    if is_split:
        lowering.add(
            "attention_softmax.merge",
            **split,
            positions=lowering.of_step(POSITIONS),
            y=node.output,
            sinks=0 if sinks is None else sinks,
            n_head=n_head,
            window=window,
            v_dim=v_dim,
            v_width=v_width,
            log_sum=int(attrs["log_sum"]),
        )


def _rows_at_once(one_token: bool, is_cached: bool = True) -> int:
    """Return the number of queries in registers; those of a single token are the heads of a group.

    Steps without a cache have many queries, whose maxima fill a vector where there are 32 registers.
    """
    n_rows = current().tokens
    if one_token:
        return min(4, n_rows)
    return CELLS if _has_many_registers() and not is_cached else n_rows


def _registers(n_rows: int) -> str:
    """Return queries in registers times vectors beside each."""
    return f"{n_rows}x{_width(n_rows)}"


def _width(n_rows: int) -> int:
    """Return the vectors beside each query: two where there are 32 registers, unless there are many queries."""
    return 2 if _has_many_registers() and n_rows < CELLS else 1


def _has_many_registers() -> bool:
    """Return True if there are 32 registers of 16 values."""
    return current().tokens > 4


def _store(lowering: Lowering, cells: Attended, x: Tensor, into: Cells, *, alongside: bool = False) -> None:
    """Add the kernel that stores keys or values; ``alongside``: the previous kernel stores the keys of these values."""
    scratch = {"scratch": lowering.scratch_memory("encoded", 64 * lowering.pool.n_threads)} if into.quantized else {}
    add = lowering.add_alongside if alongside else lowering.add
    add(
        f"kv_cache.store:{cells.kv_type}",
        **cells.where,
        **scratch,
        x=x,
        cache=into.address,
        head_bytes=into.head_bytes,
        tile_bytes=into.tile_bytes,
        n_columns=into.n_columns,
        dim=into.dim,
        unit=into.unit,
    )


def _kv_store(lowering: Lowering, node: Node) -> None:
    """Store keys and values for the attention of another graph, which finds them by its ``Batch.memory``."""
    cells = _cached(lowering, node.state_of(KVState))
    _store(lowering, cells, node.inputs["k"], cells.cache.keys)
    if "v" in node.inputs:
        assert cells.cache.values is not None
        _store(lowering, cells, node.inputs["v"], cells.cache.values, alongside=True)


def _cells(lowering: Lowering, node: Node) -> Attended:
    if node.state is None:
        return _of_this_step(lowering, node)
    cells = _cached(lowering, node.state_of(KVState))
    if not node.state_of(KVState).is_memory:
        return cells
    where = {**cells.where, "table": lowering.of_step(MEMORY_TABLE)}
    return replace(cells, where=where, lengths=lowering.of_step(MEMORY_LENGTHS))


def _cached(lowering: Lowering, state: KVState) -> Attended:
    if state not in lowering.states:
        lowering.states[state] = KVCache(state, lowering.limits)
    table = lowering.of_step(BLOCK_TABLES + 2 * sorted(lowering.limits.n_blocks).index(state.window))
    size = lowering.limits.block_size
    return Attended(
        lowering.states[state], lowering.limits.kv_type, size, {**_tokens(lowering), "table": table, "block_size": size}
    )


def _of_this_step(lowering: Lowering, node: Node) -> Attended:
    """Return the step's own keys and values in float32, each in the cell of its row: blocks of one position."""
    k, v_dim = node.inputs["k"], int(node.inputs["v"].shape[2]) if "v" in node.inputs else 0
    state = _step_state(int(k.shape[1]), int(k.shape[2]), v_dim)
    if state not in lowering.states:
        lowering.states[state] = KVCache(
            state, replace(lowering.limits, kv_type="f32", n_blocks={0: lowering.max_rows}, block_size=1)
        )
    width = lowering.limits.n_batch
    table = lowering.scratch_memory("rows of positions", 4 * lowering.limits.n_seqs * width)
    if "rows of positions" not in lowering.computed:
        lowering.computed.add("rows of positions")
        lowering.add("attention.number_rows", **_tokens(lowering), table=table, width=width)
    place = lowering.hold(np.array([table, width], np.int64))
    return Attended(lowering.states[state], "f32", 1, {**_tokens(lowering), "table": place, "block_size": 1})


@functools.cache
def _step_state(n_head_kv: int, k_dim: int, v_dim: int) -> KVState:
    """Return a state without a cache. Layers with keys and values of one size share its memory."""
    return KVState("step", n_head_kv, k_dim, v_dim)


def _tokens(lowering: Lowering) -> dict[str, int]:
    return {
        "n_seqs": lowering.size(N_SEQS),
        "seq_starts": lowering.of_step(SEQ_STARTS),
        "positions": lowering.of_step(POSITIONS),
    }


def _bias(lowering: Lowering, node: Node, n_head: int) -> dict[str, int]:
    """Return the biases of ALiBi or relative positions: per head a row with a value per distance, in units of ln 2."""
    slopes, relative, mask = node.attrs["slopes"], node.inputs.get("bias"), node.inputs.get("mask")
    if mask is not None:
        return {"bias": lowering.address(mask), "stride": int(mask.shape[-1]), "zero": 0}
    if not slopes and relative is None:
        return {"bias": 0, "stride": 0, "zero": 0}
    # Positions beyond either end are loaded but not used.
    reach = max(lowering.limits.n_ctx, lowering.limits.n_batch) + 2 * CHUNK
    distance = np.arange(-reach, reach + 1)
    rows = np.zeros((n_head, len(distance)))
    if slopes:
        rows -= np.outer(slopes, np.abs(distance))
    if relative is not None:
        table = node.weight("bias").dequantize()
        middle = table.shape[1] // 2
        rows += table[:, np.clip(distance, -middle, middle) + middle]
    values = (rows * _LOG2_E).astype(np.float32)
    return {"bias": lowering.hold(values), "stride": values.shape[1], "zero": reach}


def _split(lowering: Lowering, window: int, n_head: int, v_width: int) -> dict[str, int]:
    """Split the positions of one token into parts, so that all threads have work with any number of heads."""
    n_positions = min(window + PART, lowering.limits.n_ctx) if window else lowering.limits.n_ctx
    n_parts = n_positions // PART + 1
    return {"part_size": PART, "partial": lowering.scratch_memory("partial", 4 * n_parts * n_head * (v_width + 16))}


def _claims_store(node: Node, limits: Limits) -> bool:
    return can_hold(node.state_of(KVState), limits)


def kernels() -> Iterator[str]:
    """Yield the kernels that models need: causal attention over any cache type, other masks over COMMON_TYPES."""
    yield from (f"kv_cache.store:{kv_type}" for kv_type in KV_TYPES)
    yield from (f"indexer.choose:{kv_type}:tiles" for kv_type in COMMON_TYPES)
    kinds = [f"{kv_type}:{{}}:tiles:plain:causal" for kv_type in KV_TYPES]
    causal = ("plain_biased:causal", "plain_chosen:causal", "capped:causal")
    others = (*causal, "plain_chosen:near", "plain:chunk", "plain:near")
    kinds += [f"{kv_type}:{{}}:tiles:{other}" for kv_type in COMMON_TYPES for other in others]
    for n_rows in sorted({_rows_at_once(True), _rows_at_once(False)}):
        yield from (f"attention.attend:{kind.format(_registers(n_rows))}" for kind in kinds)
    variants = ("plain:causal", "plain:near", "plain_biased:near", "plain:whole_chunk")  # without a cache
    for n_rows in sorted({_rows_at_once(True), _rows_at_once(False, is_cached=False)}):
        yield from (f"attention.attend:f32:{_registers(n_rows)}:any:{variant}" for variant in variants)
    yield "attention_memory.attend:f16"
    if _has_many_registers():
        yield from (f"attention_step.attend:{mask}" for mask in ("causal", "near", "whole_chunk"))


RULES = {
    "attention": Rule(_attention, _claims),
    "kv_store": Rule(_kv_store, _claims_store),
    "choose_positions": Rule(_choose_positions, _claims_store),
}
