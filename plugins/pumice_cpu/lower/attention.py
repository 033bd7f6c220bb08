"""The rule for attention: store the keys and values, attend, and merge where one token's positions were split."""

from __future__ import annotations

import numpy as np

from pumice.plugin import N_SEQS, KVState, Limits, Node, Tensor
from pumice_cpu.isa import current
from pumice_cpu.kv_cache import CELLS, CHUNK, PART, Cells, KVCache, can_hold, scratch_at
from pumice_cpu.lower.rule import BLOCK_TABLES, POSITIONS, SEQ_STARTS, Lowering, Rule
from pumice_cpu.runtime import float_bits

_ALL_POSITIONS = 1 << 40
_LOG2_E = 1.4426950408889634


def _claims(node: Node, limits: Limits) -> bool:
    """Causal attention over a cache of its own."""
    if not isinstance(node.state, KVState) or "k" not in node.inputs or not node.attrs["causal"]:
        return False
    if node.attrs["chunk"] or node.attrs["slopes"] or "bias" in node.inputs:
        return False
    return can_hold(node.state, limits)


def _attention(at: Lowering, node: Node) -> None:
    q, k, v, sinks = node.inputs["q"], node.inputs["k"], node.inputs.get("v"), node.inputs.get("sinks")
    state = node.state_of(KVState)
    if state not in at.states:
        at.states[state] = KVCache(state, at.limits)
    cache = at.states[state]
    _store(at, state, k, cache.keys)
    if v is not None:
        _store(at, state, v, cache.values)

    n_head, k_dim, v_dim = int(q.shape[1]), int(q.shape[2]), int(node.output.shape[2])
    group = n_head // state.n_head_kv
    values: Cells | None = cache.values
    one_token = at.is_single(q)
    n_rows = min(4, current().tokens) if one_token else current().tokens  # one token: the heads of a group
    v_width = -(-v_dim // 32) * 32
    scale, softcap = node.attrs["scale"], node.attrs["softcap"]
    cells = "tiles" if at.limits.block_size % CELLS == 0 else "any"
    split = _split(at, state, n_head, v_width) if one_token else {"part_size": _ALL_POSITIONS, "partial": 0}
    at.add(
        f"attention.attend:{at.limits.kv_type}:{n_rows}:{cells}:{'capped' if softcap else 'plain'}",
        **_where(at, state),
        **split,
        q=at.address(q),
        y=at.address(node.output),
        sinks=0 if sinks is None else at.address(sinks),
        n_head=n_head,
        group=group,
        scale=float_bits(scale / softcap if softcap else scale * _LOG2_E),
        cap=float_bits(softcap * _LOG2_E),
        window=state.window,
        keys=at.hold(cache.keys.layout),
        values=at.hold(values.layout if values else np.zeros_like(cache.keys.layout)),
        v_dim=v_dim,
        chunk_size=CHUNK // 2 if one_token else CHUNK,
        scratch=at.scratch_memory("attention", scratch_at(0, n_rows, k_dim, v_dim).end * at.pool.n_threads + 1024),
        at_once=n_rows,
    )
    if one_token:
        at.add(
            "attention.merge",
            **split,
            positions=at.of_step(POSITIONS),
            y=at.address(node.output),
            n_head=n_head,
            window=state.window,
            v_dim=v_dim,
            v_width=v_width,
        )


def _store(at: Lowering, state: KVState, x: Tensor, cells: Cells) -> None:
    scratch = {"scratch": at.scratch_memory("encoded", 64 * at.pool.n_threads)} if cells.quantized else {}
    at.add(
        f"kv_cache.store:{at.limits.kv_type}",
        **_where(at, state),
        **scratch,
        x=at.address(x),
        cache=cells.address,
        head_bytes=cells.head_bytes,
        tile_bytes=cells.tile_bytes,
        n_columns=cells.n_columns,
        dim=cells.dim,
        unit=cells.unit,
    )


def _where(at: Lowering, state: KVState) -> dict[str, int]:
    """Arguments that say which cells the tokens of a step have."""
    table = sorted(at.limits.n_blocks).index(state.window)
    return {
        "n_seqs": at.size(N_SEQS),
        "seq_starts": at.of_step(SEQ_STARTS),
        "positions": at.of_step(POSITIONS),
        "table": at.of_step(BLOCK_TABLES + 2 * table),
        "block_size": at.limits.block_size,
    }


def _split(at: Lowering, state: KVState, n_head: int, v_width: int) -> dict[str, int]:
    """The positions of one token in parts, so that all threads have work with any number of heads."""
    n_positions = min(state.window + PART, at.limits.n_ctx) if state.window else at.limits.n_ctx
    n_parts = n_positions // PART + 1
    return {"part_size": PART, "partial": at.scratch_memory("partial", 4 * n_parts * n_head * (v_width + 16))}


RULES = {"attention": Rule(_attention, _claims)}
