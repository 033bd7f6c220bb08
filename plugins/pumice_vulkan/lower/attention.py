"""The rule for attention (flash attention, GQA, MLA): store the step's keys and values, then attend.

Single tokens of sequences (decode) take one dispatch; prompts (prefill) and steps without a cache, whose keys and
values become float16, run on matrix units if available. Biases and attention to a memory use the general kernels,
``attention_part`` and ``attention_tile``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pumice.plugin import Weight
from pumice.plugin.unstable import KVState, Limits, Node
from pumice_vulkan.kv_cache import can_hold, is_quantized
from pumice_vulkan.lower.attended import Attended, attended, halved, store
from pumice_vulkan.lower.attention_decode import attend_alone
from pumice_vulkan.lower.attention_terms import (
    BOTH_SIDES,
    MEMORY,
    float_bits,
    has_more,
    mask_of,
    rotation_constants,
    v_dim_of,
    window_of,
)
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import LANES, LANES_ATTENTION, attention_shape

FEW_TOKENS = 8  # up to this number of tokens, positions are split into parts; more tokens use tiles
PART = 128  # positions per part
NOTHING_ADDED, OF_DISTANCE, OF_INDEXER = range(3)  # as in shaders/attention_general.glsl
LANES_KERNEL = "attention_lanes"
SHARING = 8  # workgroups that share a tile of many sequences: PARTS in shaders/attention_lanes.comp
WHOLE = 16  # multiple to which heads are padded on matrix units in attention without a cache
MOST_VALUES = 256  # maximum head dimension on matrix units, whose sums stay in registers


def _attention(lowering: Lowering, node: Node) -> None:
    q, k = node.inputs["q"], node.inputs.get("k")
    if k is not None and attend_alone(lowering, node, q, k, None):
        return
    if k is not None and node.state is not None:
        store(lowering, node)
    if lowering.n_tokens <= FEW_TOKENS or lowering.invariant:
        _attend_in_parts(lowering, node)
    elif not (
        _attend_in_lanes(lowering, node) or _attend_on_matrix_units(lowering, node) or _attend_in_blocks(lowering, node)
    ):
        _attend_in_tiles(lowering, node)


def _n_parts(lowering: Lowering, node: Node) -> int:
    """Return the maximum number of parts that contain a token's attended positions."""
    if node.state is None:
        return -(-lowering.n_tokens // PART)
    window = window_of(node) + (mask_of(node) == BOTH_SIDES)
    n_positions = min(lowering.limits.n_ctx, window) if window_of(node) else lowering.limits.n_ctx
    return -(-n_positions // PART) + (1 if n_positions < lowering.limits.n_ctx else 0)


def _attend_in_parts(lowering: Lowering, node: Node) -> None:
    q, sinks, n_head_kv = node.inputs["q"], node.inputs.get("sinks"), attended(lowering, node).n_head_kv
    n_head, k_dim, v_dim = int(q.shape[1]), int(q.shape[2]), v_dim_of(node)
    per_key = n_head // n_head_kv
    heads = min(per_key, 8 if k_dim <= 256 else 4)
    n_parts = _n_parts(lowering, node)
    v_quads = -(-v_dim // 4)
    part_words = 4 * v_quads + 4
    y = lowering.place(node.output)
    partial = (
        y if n_parts == 1 else lowering.scratch("attention parts", 4 * lowering.rows(q) * n_head * n_parts * part_words)
    )
    _attend(
        lowering,
        "attention_part",
        node,
        partial,
        constants=[PART, heads, -(-k_dim // 8), v_quads, sinks is not None, n_parts == 1],
        n_parts=n_parts,
        grid=(n_parts, n_head_kv * -(-per_key // heads), lowering.rows(q)),
    )
    if n_parts > 1:
        steps = lowering.memory.layout
        lowering.dispatch(
            "attention_merge",
            count=q,
            reads={"partial": partial, "sinks": y if sinks is None else lowering.place(sinks)},
            writes={"y": y},
            push={
                "positions": steps.positions,
                "sequences": steps.sequences,
                "seq_starts": steps.seq_starts,
                "window": window_of(node),
                "part_size": PART,
                "n_parts": n_parts,
                "part_words": part_words,
                "n_head": n_head,
                "v_dim": v_dim,
                "lengths": steps.memory_lengths,
            },
            constants=[
                *(64 if v_dim <= 64 else 128, sinks is not None, mask_of(node), node.attrs["log_sum"]),
                *rotation_constants(node, lowering.limits.kv_type),
            ],
            grid=(n_head, lowering.rows(q), 1),
        )


def _attend_in_lanes(lowering: Lowering, node: Node) -> bool:
    """Return False if shaders/attention_lanes.comp does not apply, or was not measured to be faster."""
    q, sinks, by_rows = node.inputs["q"], node.inputs.get("sinks"), lowering.memory.sums_by_rows
    k_dim, v_dim = int(q.shape[2]), int(node.output.shape[2])
    shape = LANES_ATTENTION.get((k_dim, v_dim))
    if shape is None or by_rows is None or has_more(node) or mask_of(node) == MEMORY:
        return False
    if shape.shared_bytes(k_dim, v_dim) > lowering.device.threadgroup_memory_bytes:
        return False
    if node.state is not None and (
        lowering.limits.kv_type == "f32" or (shape.fixed and lowering.limits.kv_type != "f16")
    ):
        return False
    cells = halved(lowering, node, WHOLE) if node.state is None else attended(lowering, node)
    per_key = int(q.shape[1]) // cells.n_head_kv
    n_tiles = -(-lowering.rows(q) * per_key // shape.rows)
    n_shared = _shared_tiles(lowering, per_key, shape.rows) if node.state is not None else 0
    _attend(
        lowering,
        shape.kernel(LANES_KERNEL, k_dim),
        node,
        lowering.place(node.output),
        constants=[
            *(shape.subgroups * LANES, shape.subgroups, shape.row_tiles, shape.columns),
            *(k_dim, v_dim, sinks is not None),
        ],
        n_parts=n_shared,
        grid=(n_tiles + n_shared * (SHARING - 1), cells.n_head_kv, 1),
        more=[by_rows],
        full_subgroups=LANES_KERNEL == "attention_lanes",
        cells=cells,
    )
    return True


def _shared_tiles(lowering: Lowering, per_key: int, tile_rows: int) -> int:
    """Return the number of tiles that may have many sequences: generating ones are the first of a step.

    None for steps with one output row, which are a single prompt's as a rule.
    """
    if lowering.n_outputs == 1:
        return 0
    n_generating = min(lowering.n_outputs, lowering.n_tokens, lowering.limits.n_seqs)
    return -(-n_generating * per_key // tile_rows)


def _attend_on_matrix_units(lowering: Lowering, node: Node) -> bool:
    """Return False if matrix units do not apply: float32 precision, unsupported head dimensions, or a bias."""
    q, sinks = node.inputs["q"], node.inputs.get("sinks")
    k_dim, v_dim = int(q.shape[2]), int(node.output.shape[2])
    if has_more(node) or mask_of(node) == MEMORY or "attention_cooperative" in lowering.device.description.avoided:
        return False
    if not lowering.cooperative or max(k_dim, v_dim) > MOST_VALUES:
        return False
    m, n, k = lowering.unit
    is_ragged = bool(k_dim % max(k, 8) or v_dim % max(n, 8))
    if lowering.device.subgroup_size % m or (
        node.state is not None and (lowering.limits.kv_type == "f32" or is_ragged)
    ):
        return False
    k_padded, v_padded = (-(-dim // WHOLE) * WHOLE for dim in (k_dim, v_dim))
    shape = attention_shape(lowering.device, k_padded, v_padded, m)
    if shape is None or k_dim % 4 or v_dim % 4:
        return False
    cells = halved(lowering, node, WHOLE) if node.state is None else attended(lowering, node)
    n_rows = lowering.rows(q) * (int(q.shape[1]) // cells.n_head_kv)
    _attend(
        lowering,
        "attention_cooperative",
        node,
        lowering.place(node.output),
        constants=[
            *(shape.subgroups * lowering.device.subgroup_size, shape.subgroups, m, shape.columns),
            *(k_padded, v_padded, sinks is not None),
        ],
        n_parts=1,
        grid=(-(-n_rows // (m * shape.subgroups)), cells.n_head_kv, 1),
        more=[k_dim, v_dim, n, k],
        full_subgroups=True,
        cells=cells,
    )
    return True


@dataclass(frozen=True)
class AttentionBlock:
    """Work division of shaders/attention_block.comp: threads of a workgroup, and rows and columns of each."""

    threads: int
    rows: int
    columns: int

    @property
    def tile_rows(self) -> int:
        return self.threads // 16 * self.rows

    def shared_bytes(self, k_quads: int) -> int:
        queries = self.tile_rows * (-(-k_quads // 8) * 8 + 1)
        quads = queries + 16 * self.columns * 9 + self.tile_rows * (4 * self.columns + 1)
        return 16 * quads + 4 * 16 * self.columns


BLOCKS: Mapping[int, Sequence[AttentionBlock]] = {
    16: [AttentionBlock(256, 2, 2), AttentionBlock(128, 2, 2)],
    32: [AttentionBlock(256, 4, 2), AttentionBlock(128, 2, 2)],
}
"""Shapes by the largest quads of keys and values, by preference: measured on an H200 without its matrix units."""

QUANTIZED_BLOCKS: Mapping[int, Sequence[AttentionBlock]] = {32: [AttentionBlock(256, 4, 2), AttentionBlock(128, 2, 2)]}
"""Shapes for quantized caches, in which more rows share the work of decoding."""


def _attend_in_blocks(lowering: Lowering, node: Node) -> bool:
    """Return False if no shape of shaders/attention_block.comp applies."""
    k_quads, v_quads = _quads(node)
    shapes = QUANTIZED_BLOCKS if is_quantized(attended(lowering, node).kv_type) else BLOCKS
    possible = next((shapes[most] for most in sorted(shapes) if max(k_quads, v_quads) <= most), ())
    most_bytes = lowering.device.threadgroup_memory_bytes
    shape = next((shape for shape in possible if shape.shared_bytes(k_quads) <= most_bytes), None)
    if shape is None:
        return False
    more = [shape.columns, shape.threads]
    _attend_by_quads(lowering, node, "attention_block", shape.rows, shape.tile_rows, more)
    return True


def _attend_in_tiles(lowering: Lowering, node: Node) -> None:
    rows_each, n_slice = _tile(lowering.device.threadgroup_memory_bytes, _quads(node)[1])
    _attend_by_quads(lowering, node, "attention_tile", rows_each, 16 * rows_each, [n_slice])


def _quads(node: Node) -> tuple[int, int]:
    """Return the groups of four values of a key and of a value."""
    return -(-int(node.inputs["q"].shape[2]) // 4), -(-v_dim_of(node) // 4)


def _attend_by_quads(
    lowering: Lowering, node: Node, kernel: str, rows_each: int, tile_rows: int, more: Sequence[int]
) -> None:
    """Attend with ``tile_rows`` queries in a workgroup, ``rows_each`` of them in an invocation."""
    q, n_head_kv = node.inputs["q"], attended(lowering, node).n_head_kv
    n_rows = lowering.rows(q) * (int(q.shape[1]) // n_head_kv)
    _attend(
        lowering,
        kernel,
        node,
        lowering.place(node.output),
        constants=[rows_each, *_quads(node), node.inputs.get("sinks") is not None],
        n_parts=1,
        grid=(-(-n_rows // tile_rows), n_head_kv, 1),
        more=more,
    )


def _tile(memory_bytes: int, v_quads: int) -> tuple[int, int]:
    """Return 16ths of a tile's rows, and the quads of values at a time, that fit into shared memory."""
    rows_each = 4 if v_quads <= 32 else 2 if v_quads <= 64 else 1
    quads = max((16 * rows_each + 32) * 9, 32 * 32)  # of queries and keys, then of values
    fits = 16 * quads + 4 * 16 * rows_each * 33 <= memory_bytes
    return (rows_each, 32) if fits else (min(rows_each, 2), 16)


def _attend(
    lowering: Lowering,
    kernel: str,
    node: Node,
    target: BufferSlice,
    *,
    constants: list[int],
    n_parts: int,
    grid: tuple[int, int, int],
    more: Sequence[int] = (),
    full_subgroups: bool = False,
    cells: Attended | None = None,
) -> None:
    """Append a dispatch with the arguments of shaders/attention_arguments.glsl; ``more``: the last constants."""
    q, sinks, cells = node.inputs["q"], node.inputs.get("sinks"), cells or attended(lowering, node)
    added, bias, reach = _added(lowering, node)
    layout, steps = cells.layout, lowering.memory.layout
    lowering.dispatch(
        f"{kernel}.{cells.kv_type}",
        count=q,
        reads={
            "q": lowering.place(q),
            "cache": cells.place,
            "sinks": lowering.place(q if sinks is None else sinks),
            "bias": bias or lowering.place(q),
        },
        also_reads=[cells.values],
        writes={"y": target},
        push={
            "sequences": steps.sequences,
            "positions": steps.positions,
            "seq_starts": steps.seq_starts,
            "table": cells.table,
            "table_width": steps.table_width,
            "lengths": steps.memory_lengths,
            **layout.push,
            "n_head_kv": cells.n_head_kv,
            "heads_per_key": int(q.shape[1]) // cells.n_head_kv,
            "k_dim": int(q.shape[2]),
            "v_dim": v_dim_of(node),
            "v_head_dim": layout.values.head_dim,
            "window": window_of(node),
            "scale": node.attrs["scale"],
            "n_parts": n_parts,
            "reach": reach,
        },
        constants=[
            *(*constants, lowering.limits.block_size, float_bits(node.attrs["softcap"])),
            *(mask_of(node), added, cells.of_step, node.attrs["log_sum"]),
            *more,
            *rotation_constants(node, cells.kv_type),
        ],
        grid=grid,
        full_subgroups=full_subgroups,
    )


def _added(lowering: Lowering, node: Node) -> tuple[int, BufferSlice | None, int]:
    """Return the bias of scores: its kind, place and reach (shaders/attention_general.glsl)."""
    if "mask" in node.inputs:
        mask = node.inputs["mask"]
        return OF_INDEXER, lowering.place(mask), lowering.width(mask)
    place, reach = _distance_bias(lowering, node)
    return (NOTHING_ADDED if place is None else OF_DISTANCE), place, reach


def _distance_bias(lowering: Lowering, node: Node) -> tuple[BufferSlice | None, int]:
    """Return the bias of ALiBi or relative positions: each head's slope, then values for distances up to ``reach``."""
    slopes, bias = node.attrs["slopes"], node.inputs.get("bias")
    if not slopes and bias is None:
        return None, 0
    column = np.array(slopes or [0.0] * int(node.inputs["q"].shape[1]), np.float32)[:, None]
    if not isinstance(bias, Weight):
        return lowering.constant(("slopes", slopes), lambda: np.hstack([column, np.zeros_like(column)])), 0
    (place,) = lowering.upload(
        bias, ("slopes", slopes), lambda: [np.hstack([column, bias.dequantize().astype(np.float32)])]
    )
    return place, int(bias.shape[1]) // 2


def _claims(node: Node, limits: Limits) -> bool:
    """Return True for attention over a cache, over a whole memory, or without a cache with rows of whole vectors."""
    if "mask" in node.inputs and (node.attrs["slopes"] or "bias" in node.inputs):
        return False
    if isinstance(node.state, KVState):
        masked = node.attrs["causal"] or window_of(node)
        return can_hold(node.state, limits) and not (node.state.is_memory and masked)
    return int(node.inputs["k"].shape[2]) % 8 == 0 and v_dim_of(node) % 8 == 0


def _claims_store(node: Node, limits: Limits) -> bool:
    return can_hold(node.state_of(KVState), limits)


RULES = {"attention": Rule(_attention, _claims), "kv_store": Rule(store, _claims_store)}
