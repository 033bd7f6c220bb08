"""The rule for attention (flash attention, GQA, MLA): store the step's keys and values, then attend.

Tokens alone in their sequences (decode) take one dispatch; prompts (prefill) run on matrix units where there are any.
Biases, chunks, what is not causal and what is of the step alone are left to the general kernels, ``attention_part``
and ``attention_tile``.
"""

from __future__ import annotations

import numpy as np

from pumice.plugin import KVState, Limits, Node, Weight
from pumice_vulkan.kv_cache import can_hold
from pumice_vulkan.lower.attended import attended, store
from pumice_vulkan.lower.attention_decode import attend_alone
from pumice_vulkan.lower.attention_terms import BOTH_SIDES, float_bits, is_plain, mask_of, v_dim_of, window_of
from pumice_vulkan.lower.halves import UNIT
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.memory import Place
from pumice_vulkan.tuning import attention_shape

FEW_TOKENS = 8  # up to so many the positions of each are split; more are attended to in tiles
PART = 128  # positions of a workgroup, where they are split
NOTHING_ADDED, OF_DISTANCE, OF_INDEXER = range(3)  # as in shaders/attention_general.glsl
MOST_VALUES = 256  # of a head on matrix units, whose sums stay in registers


def _attention(at: Lowering, node: Node) -> None:
    q, k = node.inputs["q"], node.inputs.get("k")
    if k is not None and attend_alone(at, node, q, k, None):
        return
    if k is not None and node.state is not None:
        store(at, node)
    if at.n_tokens <= FEW_TOKENS:
        _attend_in_parts(at, node)
    elif not _attend_on_matrix_units(at, node):
        _attend_in_tiles(at, node)


def _n_parts(at: Lowering, node: Node) -> int:
    """The most parts that the positions can lie in which a token attends to."""
    if node.state is None:
        return -(-at.n_tokens // PART)
    window = window_of(node) + (mask_of(node) == BOTH_SIDES)
    n_positions = min(at.limits.n_ctx, window) if window_of(node) else at.limits.n_ctx
    return -(-n_positions // PART) + (1 if n_positions < at.limits.n_ctx else 0)


def _attend_in_parts(at: Lowering, node: Node) -> None:
    q, sinks, n_head_kv = node.inputs["q"], node.inputs.get("sinks"), attended(at, node).n_head_kv
    n_head, k_dim, v_dim = int(q.shape[1]), int(q.shape[2]), v_dim_of(node)
    per_key = n_head // n_head_kv
    heads = min(per_key, 8 if k_dim <= 256 else 4)
    n_parts = _n_parts(at, node)
    v_quads = -(-v_dim // 4)
    part_words = 4 * v_quads + 4
    y = at.place(node.output)
    partial = y if n_parts == 1 else at.scratch("attention parts", 4 * at.rows(q) * n_head * n_parts * part_words)
    _attend(
        at,
        "attention_part",
        node,
        partial,
        constants=[PART, heads, -(-k_dim // 8), v_quads, sinks is not None, n_parts == 1],
        n_parts=n_parts,
        grid=(n_parts, n_head_kv * -(-per_key // heads), at.rows(q)),
    )
    if n_parts > 1:
        steps = at.memory.layout
        at.dispatch(
            "attention_merge",
            count=q,
            reads={"partial": partial, "sinks": y if sinks is None else at.place(sinks)},
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
            constants=[64 if v_dim <= 64 else 128, sinks is not None, mask_of(node), node.attrs["log_sum"]],
            grid=(n_head, at.rows(q), 1),
        )


def _attend_on_matrix_units(at: Lowering, node: Node) -> bool:
    """False where they cannot: for the precision of float32, for heads of another size, or a bias."""
    q, sinks = node.inputs["q"], node.inputs.get("sinks")
    k_dim, v_dim = int(q.shape[2]), int(node.output.shape[2])
    if not is_plain(node):
        return False
    shape = attention_shape(at.device, k_dim, v_dim, UNIT)
    if not at.cooperative or at.limits.kv_type == "f32" or shape is None or at.device.subgroup_size % UNIT:
        return False
    if k_dim % UNIT or v_dim % UNIT or max(k_dim, v_dim) > MOST_VALUES:
        return False
    n_head_kv = node.state_of(KVState).n_head_kv
    n_rows = at.rows(q) * (int(q.shape[1]) // n_head_kv)
    _attend(
        at,
        "attention_cooperative",
        node,
        at.place(node.output),
        constants=[
            *(shape.subgroups * at.device.subgroup_size, shape.subgroups, UNIT, shape.columns),
            *(k_dim, v_dim, sinks is not None),
        ],
        n_parts=1,
        grid=(-(-n_rows // (UNIT * shape.subgroups)), n_head_kv, 1),
        full_subgroups=True,
    )
    return True


def _attend_in_tiles(at: Lowering, node: Node) -> None:
    q, sinks, n_head_kv = node.inputs["q"], node.inputs.get("sinks"), attended(at, node).n_head_kv
    k_quads, v_quads = -(-int(q.shape[2]) // 4), -(-v_dim_of(node) // 4)
    rows_each = 4 if v_quads <= 32 else 2 if v_quads <= 64 else 1
    per_key = int(q.shape[1]) // n_head_kv
    _attend(
        at,
        "attention_tile",
        node,
        at.place(node.output),
        constants=[rows_each, k_quads, v_quads, sinks is not None],
        n_parts=1,
        grid=(-(-at.rows(q) * per_key // (16 * rows_each)), n_head_kv, 1),
    )


def _attend(
    at: Lowering,
    kernel: str,
    node: Node,
    target: Place,
    *,
    constants: list[int],
    n_parts: int,
    grid: tuple[int, int, int],
    full_subgroups: bool = False,
) -> None:
    """A dispatch of a kernel with the arguments of shaders/attention_arguments.glsl."""
    q, sinks, cells = node.inputs["q"], node.inputs.get("sinks"), attended(at, node)
    added, bias, reach = _added(at, node)
    layout, steps = cells.layout, at.memory.layout
    at.dispatch(
        f"{kernel}.{cells.kv_type}",
        count=q,
        reads={
            "q": at.place(q),
            "cache": cells.place,
            "sinks": at.place(q if sinks is None else sinks),
            "bias": bias or at.place(q),
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
            *(*constants, at.limits.block_size, float_bits(node.attrs["softcap"])),
            *(mask_of(node), added, cells.of_step, node.attrs["log_sum"]),
        ],
        grid=grid,
        full_subgroups=full_subgroups,
    )


def _added(at: Lowering, node: Node) -> tuple[int, Place | None, int]:
    """What is added to scores: its kind, where it is, and how far it reaches (shaders/attention_general.glsl)."""
    if "mask" in node.inputs:
        mask = node.inputs["mask"]
        return OF_INDEXER, at.place(mask), at.width(mask)
    place, reach = _distance_bias(at, node)
    return (NOTHING_ADDED if place is None else OF_DISTANCE), place, reach


def _distance_bias(at: Lowering, node: Node) -> tuple[Place | None, int]:
    """ALiBi and relative positions: each head's slope, then its values for distances up to ``reach`` either way."""
    slopes, bias = node.attrs["slopes"], node.inputs.get("bias")
    if not slopes and bias is None:
        return None, 0
    column = np.array(slopes or [0.0] * int(node.inputs["q"].shape[1]), np.float32)[:, None]
    if not isinstance(bias, Weight):
        return at.constant(("slopes", slopes), lambda: np.hstack([column, np.zeros_like(column)])), 0
    (place,) = at.upload(bias, ("slopes", slopes), lambda: [np.hstack([column, bias.dequantize().astype(np.float32)])])
    return place, int(bias.shape[1]) // 2


def _claims(node: Node, limits: Limits) -> bool:
    """Attention over a cache, over all of a memory, or over the step alone where rows are whole vectors."""
    if "mask" in node.inputs and (node.attrs["slopes"] or "bias" in node.inputs):
        return False
    if isinstance(node.state, KVState):
        masked = node.attrs["causal"] or window_of(node)
        return can_hold(node.state, limits) and not (node.state.is_memory and masked)
    return int(node.inputs["k"].shape[2]) % 8 == 0 and v_dim_of(node) % 8 == 0


def _claims_store(node: Node, limits: Limits) -> bool:
    return can_hold(node.state_of(KVState), limits)


RULES = {"attention": Rule(_attention, _claims), "kv_store": Rule(store, _claims_store)}
