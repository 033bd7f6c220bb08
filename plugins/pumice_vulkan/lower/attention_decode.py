"""Attention of single tokens (decode): RoPE, the store to the cache and flash attention in one dispatch."""

from __future__ import annotations

import numpy as np

from pumice.plugin import KVState, Node, Tensor
from pumice_vulkan.kv_cache import BLOCK, is_quantized
from pumice_vulkan.lower.attended import cache_of
from pumice_vulkan.lower.attention_terms import float_bits, is_plain
from pumice_vulkan.lower.few import few_order, least_few
from pumice_vulkan.lower.halves import Order, new_halves, tiles
from pumice_vulkan.lower.rope import pairs, turns
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import decode_shape


def attend_alone(lowering: Lowering, node: Node, q: Tensor, k: Tensor, rope: Node | None) -> bool:
    """Attend with single tokens of sequences, ``rope`` included; return False if the kernel does not support it."""
    v, sinks = node.inputs.get("v"), node.inputs.get("sinks")
    if not lowering.lone or lowering.invariant or v is None or not is_plain(node):
        return False
    if not _can_run(lowering, node.state_of(KVState)):
        return False
    state = node.state_of(KVState)
    layout, cache = cache_of(lowering, state)
    steps, n_head = lowering.memory.layout, int(q.shape[1])
    per_key = n_head // state.n_head_kv
    n_rows = lowering.rows(q)
    shape = decode_shape(
        lowering.device, max(state.k_dim, state.v_dim), n_head, state.n_head_kv, lowering.limits.n_ctx, n_rows
    )
    n_groups = state.n_head_kv * -(-per_key // shape.heads)
    n_positions = min(lowering.limits.n_ctx, state.window or lowering.limits.n_ctx)
    n_parts = min(shape.max_parts, -(-n_positions // (shape.chunk * shape.rounds)))
    k_octets, v_octets = -(-state.k_dim // 8), -(-state.v_dim // 8)
    counters = _counters(lowering, n_head)
    partial = lowering.scratch("attention parts", 4 * n_rows * n_head * n_parts * (8 * v_octets + 4))
    y = lowering.place(node.output)
    width = n_head * state.v_dim
    order = few_order(lowering, width, n_rows)
    is_many = order is Order.LANES or (lowering.cooperative and n_rows >= least_few(width))
    leaves_halves = is_many and width % 32 == 0
    halves = new_halves(lowering, node.output, order) if leaves_halves else None
    lowering.dispatch(
        f"attention_decode.{lowering.limits.kv_type}",
        count=q,
        reads={
            "q": lowering.place(q),
            "k": lowering.place(k),
            "v": lowering.place(v),
            "turns": counters if rope is None else turns(lowering, rope),
            "sinks": counters if sinks is None else lowering.place(sinks),
        },
        writes={"partial": partial, "counters": counters, "cache": cache, "y": y, "halves": halves or y},
        push={
            "positions": steps.positions,
            "table": steps.tables[state.window],
            "table_width": steps.table_width,
            **layout.push,
            "n_head_kv": state.n_head_kv,
            "k_dim": state.k_dim,
            "v_dim": state.v_dim,
            "v_head_dim": layout.values.head_dim,
            "window": state.window,
            "scale": node.attrs["scale"],
            "n_rot": 0 if rope is None else 2 * len(rope.attrs["freqs"]),
            "second_distance": 1 if rope is None else pairs(rope)[1],
            "magnitude": 1.0 if rope is None else rope.attrs["magnitude"],
        },
        constants=[
            *(shape.threads, lowering.device.subgroup_size, shape.lanes, shape.unroll, shape.rounds, shape.heads),
            *(k_octets, v_octets, sinks is not None),
            *(per_key, lowering.limits.block_size, float_bits(node.attrs["softcap"]), halves is not None),
            *tiles(lowering, node.output, order),
            shape.late,
        ],
        grid=(n_parts, n_groups, n_rows),
        full_subgroups=True,
    )
    return True


def _counters(lowering: Lowering, n_head: int) -> BufferSlice:
    """Return a counter for each head and token of the largest bucket: all buckets use the same words."""
    n_words = 2 * lowering.limits.n_seqs * n_head  # a bucket has less than twice the tokens of its steps
    return lowering.constant(("attention counters", n_words), lambda: np.zeros(n_words, np.uint32))


def _can_run(lowering: Lowering, state: KVState) -> bool:
    """Return True if the device has the required features, and heads are whole blocks of a quantized cache."""
    whole = not is_quantized(lowering.limits.kv_type) or not (state.k_dim % BLOCK or state.v_dim % BLOCK)
    return whole and "subgroup_shuffle" in lowering.device.features
