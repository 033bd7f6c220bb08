"""Attention of tokens alone in their sequences (decode): RoPE, the store and flash attention in one dispatch."""

from __future__ import annotations

import numpy as np

from pumice.plugin import KVState, Node, Tensor
from pumice_vulkan.kv_cache import BLOCK, is_quantized
from pumice_vulkan.lower.attended import cache_of
from pumice_vulkan.lower.attention_terms import float_bits, is_plain
from pumice_vulkan.lower.few import MOST_FEW, least_few
from pumice_vulkan.lower.halves import new_halves, tiles
from pumice_vulkan.lower.rope import pairs, turns
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.tuning import decode_shape


def attend_alone(at: Lowering, node: Node, q: Tensor, k: Tensor, rope: Node | None) -> bool:
    """Everything for tokens alone in their sequences, ``rope`` included; False where the kernel cannot do it."""
    v, sinks = node.inputs.get("v"), node.inputs.get("sinks")
    if not at.lone or v is None or not is_plain(node) or not _can_run(at, node.state_of(KVState)):
        return False
    state = node.state_of(KVState)
    layout, cache = cache_of(at, state)
    steps, n_head = at.memory.layout, int(q.shape[1])
    per_key = n_head // state.n_head_kv
    n_rows = at.rows(q)
    shape = decode_shape(at.device, max(state.k_dim, state.v_dim), n_head, state.n_head_kv, at.limits.n_ctx, n_rows)
    n_groups = state.n_head_kv * -(-per_key // shape.heads)
    n_positions = min(at.limits.n_ctx, state.window or at.limits.n_ctx)
    n_parts = min(shape.max_parts, -(-n_positions // (shape.chunk * shape.rounds)))
    k_octets, v_octets = -(-state.k_dim // 8), -(-state.v_dim // 8)
    counters = at.constant(("attention counters", n_rows * n_groups), lambda: np.zeros(n_rows * n_groups, np.uint32))
    partial = at.scratch("attention parts", 4 * n_rows * n_head * n_parts * (8 * v_octets + 4))
    y = at.place(node.output)
    width = n_head * state.v_dim
    leaves_halves = at.cooperative and least_few(width) <= n_rows <= MOST_FEW and width % 32 == 0
    halves = new_halves(at, node.output, tiled=True) if leaves_halves else None
    at.dispatch(
        f"attention_decode.{at.limits.kv_type}",
        count=q,
        reads={
            "q": at.place(q),
            "k": at.place(k),
            "v": at.place(v),
            "turns": counters if rope is None else turns(at, rope),
            "sinks": counters if sinks is None else at.place(sinks),
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
            *(shape.threads, at.device.subgroup_size, shape.lanes, shape.unroll, shape.rounds, shape.heads),
            *(k_octets, v_octets, sinks is not None),
            *(per_key, at.limits.block_size, float_bits(node.attrs["softcap"]), halves is not None),
            *tiles(at, node.output, tiled=True),
        ],
        grid=(n_parts, n_groups, n_rows),
        full_subgroups=True,
    )
    return True


def _can_run(at: Lowering, state: KVState) -> bool:
    """Whether the device has what the kernel needs, and heads are whole blocks of a quantized cache."""
    whole = not is_quantized(at.limits.kv_type) or not (state.k_dim % BLOCK or state.v_dim % BLOCK)
    return whole and "subgroup_shuffle" in at.device.features
