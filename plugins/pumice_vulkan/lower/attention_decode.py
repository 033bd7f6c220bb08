"""Attention of one or a few tokens of each sequence (decode), from RoPE and the store to the cache to its result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pumice.plugin import Tensor
from pumice.plugin.unstable import KVState, Node
from pumice_vulkan.interface import Numbers
from pumice_vulkan.kv_cache import BLOCK, CacheLayout, is_quantized
from pumice_vulkan.lower.attended import cache_of
from pumice_vulkan.lower.attention_terms import float_bits, is_plain, rotation_constants
from pumice_vulkan.lower.few import few_order, least_few
from pumice_vulkan.lower.halves import Order, new_halves, tiles
from pumice_vulkan.lower.rope import pairs, turns
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import LANES, LANES_UNIT, DecodeShape, decode_shape, units_shape

MOST_TOGETHER = 8  # tokens of a step, each of which computes the keys of those before it in its sequence
UNITS_KERNEL = "attention_decode_units"
MOST_UNITS_HEADS = 8  # heads of queries for each key, in the upper half of a fragment
MOST_UNITS_DIM = 128  # values of a head, whose sums stay in registers
WITH_NORMS = True  # norms of queries and keys are computed by the same dispatch


def attend_alone(
    lowering: Lowering, node: Node, q: Tensor, k: Tensor, rope: Node | None, norms: Sequence[Node] = ()
) -> bool:
    """Attend with single tokens of sequences, or up to ``MOST_TOGETHER`` tokens of any, ``rope`` included.

    ``norms``: of the queries and of the keys, which the kernel applies to q and k. Returns False if the kernel does not
    support it.
    """
    v, sinks = node.inputs.get("v"), node.inputs.get("sinks")
    if lowering.invariant or v is None or not is_plain(node) or not _can_run(lowering, node.state_of(KVState)):
        return False
    if not lowering.lone and lowering.n_tokens > MOST_TOGETHER:
        return False
    state = node.state_of(KVState)
    layout, cache = cache_of(lowering, state)
    n_head = int(q.shape[1])
    per_key = n_head // state.n_head_kv
    n_rows = lowering.rows(q)
    shape = _shape(lowering, state, per_key, n_rows)
    n_together = 1 if lowering.lone else lowering.n_tokens
    if n_together > 1 and _shared_bytes(lowering, state, shape, n_together) > lowering.device.threadgroup_memory_bytes:
        return False
    n_groups = state.n_head_kv * -(-per_key // shape.heads)
    n_positions = min(lowering.limits.n_ctx, state.window or lowering.limits.n_ctx)
    n_parts = min(shape.max_parts, -(-n_positions // (shape.chunk * shape.rounds)))
    k_octets, v_octets = -(-state.k_dim // 8), -(-state.v_dim // 8)
    counters = _counters(lowering, n_head)
    partial = lowering.scratch("attention parts", 4 * n_rows * n_head * n_parts * (8 * v_octets + 4))
    y = lowering.place(node.output)
    subgroup_size = LANES if shape.units else lowering.device.subgroup_size
    order, halves = _halves(lowering, node.output, n_head * state.v_dim, n_rows)
    rotation = rotation_constants(node, lowering.limits.kv_type)
    last = [bool(lowering.memory.sums_by_rows)] if shape.units else rotation
    lowering.dispatch(
        f"{UNITS_KERNEL if shape.units else 'attention_decode'}.{lowering.limits.kv_type}",
        count=q,
        reads={
            "q": lowering.place(q),
            "k": lowering.place(k),
            "v": lowering.place(v),
            "turns": counters if rope is None else turns(lowering, rope),
            "sinks": counters if sinks is None else lowering.place(sinks),
            "q_norm": lowering.place(norms[0].weight("weight")) if norms else counters,
            "k_norm": lowering.place(norms[1].weight("weight")) if norms else counters,
        },
        writes={"partial": partial, "counters": counters, "cache": cache, "y": y, "halves": halves or y},
        push=_push(lowering, node, layout, rope),
        constants=[
            *(shape.threads, subgroup_size, shape.lanes, shape.unroll, shape.rounds, shape.heads),
            *(k_octets, v_octets, sinks is not None),
            *(per_key, lowering.limits.block_size, float_bits(node.attrs["softcap"]), halves is not None),
            *tiles(lowering, node.output, order),
            *(shape.late, n_together, bool(norms), float_bits(norms[0].attrs["eps"] if norms else 0.0)),
            *last,
        ],
        grid=(n_parts, n_groups, n_rows),
        full_subgroups=not shape.units or UNITS_KERNEL == "attention_decode_units",
    )
    return True


def _shape(lowering: Lowering, state: KVState, per_key: int, n_rows: int) -> DecodeShape:
    """Return the work division, on matrix units whose fragments are known if that is faster."""
    dims, limits = (state.k_dim, state.v_dim), lowering.limits
    fits = limits.kv_type == "f16" and limits.block_size % LANES_UNIT == 0 and per_key <= MOST_UNITS_HEADS
    fits = fits and state.k_dim % 32 == state.v_dim % 64 == 0 and max(dims) <= MOST_UNITS_DIM
    fits = fits and lowering.lone and lowering.memory.sums_by_rows is not None
    if fits and (shape := units_shape(per_key, state.n_head_kv, n_rows)):
        return shape
    return decode_shape(lowering.device, max(dims), state.n_head_kv * per_key, state.n_head_kv, limits.n_ctx, n_rows)


def _halves(lowering: Lowering, output: Tensor, width: int, n_rows: int) -> tuple[Order, BufferSlice | None]:
    """Return the order in which the next product reads the result in float16, and the place of that; None without."""
    order = few_order(lowering, width, n_rows)
    is_many = order is Order.LANES or (lowering.cooperative and n_rows >= least_few(width))
    return order, new_halves(lowering, output, order) if is_many and width % 32 == 0 else None


def _push(lowering: Lowering, node: Node, layout: CacheLayout, rope: Node | None) -> dict[str, Numbers]:
    """Return the step, the cache and the rotation as push constants."""
    steps, state = lowering.memory.layout, node.state_of(KVState)
    return {
        "positions": steps.positions,
        "sequences": steps.sequences,
        "seq_starts": steps.seq_starts,
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
    }


def takes_norms(lowering: Lowering, rope: Node) -> bool:
    """Return True if subgroups have values of one head each, so that the kernel can compute its norm."""
    pairs_of_head = -(-int(rope.output.shape[2]) // 8) * 4
    return WITH_NORMS and pairs_of_head % lowering.device.subgroup_size == 0


def _counters(lowering: Lowering, n_head: int) -> BufferSlice:
    """Return a counter for each head and token of the largest bucket: all buckets use the same words."""
    most = max(2 * lowering.limits.n_seqs, MOST_TOGETHER)  # a bucket has less than twice the tokens of its steps
    n_words = most * n_head
    return lowering.constant(("attention counters", n_words), lambda: np.zeros(n_words, np.uint32))


def _shared_bytes(lowering: Lowering, state: KVState, shape: DecodeShape, n_together: int) -> int:
    """Return the shared memory of a workgroup."""
    k_quads, v_quads = 2 * -(-state.k_dim // 8), 2 * -(-state.v_dim // 8)
    n_subgroups = -(-shape.threads // lowering.device.subgroup_size)
    quads = shape.heads * (k_quads + n_subgroups * v_quads) + n_together * (k_quads + v_quads)
    return 16 * quads + 8 * shape.heads * max(n_subgroups, 32) + 16


def _can_run(lowering: Lowering, state: KVState) -> bool:
    """Return True if the device has the required features, and heads are whole blocks of a quantized cache."""
    whole = not is_quantized(lowering.limits.kv_type) or not (state.k_dim % BLOCK or state.v_dim % BLOCK)
    return whole and "subgroup_shuffle" in lowering.device.features
