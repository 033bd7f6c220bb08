"""The rule for attention: store the step's keys and values, then attend; for a lone token in one dispatch."""

from __future__ import annotations

import numpy as np

from pumice.plugin import KVState, Limits, Node, Tensor
from pumice_vulkan.kv_cache import BLOCK, CacheLayout, can_hold, is_quantized
from pumice_vulkan.lower.rope import pairs, turns
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.memory import Place
from pumice_vulkan.probe import SHAPE
from pumice_vulkan.tuning import attention_shape, decode_shape

FEW_TOKENS = 8  # up to so many the positions of each are split; more are attended to in tiles
PART = 128  # positions of a workgroup, where they are split
UNIT = SHAPE.m  # rows and columns of what matrix units multiply
MOST_VALUES = 256  # of a head on matrix units, whose sums stay in registers


def cache_of(at: Lowering, state: KVState) -> tuple[CacheLayout, Place]:
    states = at.memory.states
    if state not in states:
        layout = CacheLayout.of(state, at.limits)
        states[state] = layout, at.memory.cache.take(4 * layout.words)
    found: tuple[CacheLayout, Place] = states[state]
    return found


def _attention(at: Lowering, node: Node) -> None:
    q, k = node.inputs["q"], node.inputs["k"]
    if attend_alone(at, node, q, k, None):
        return
    _store(at, node)
    if at.n_tokens <= FEW_TOKENS:
        _attend_in_parts(at, node)
    elif not _attend_on_matrix_units(at, node):
        _attend_in_tiles(at, node)


def _store(at: Lowering, node: Node) -> None:
    k, v, state = node.inputs["k"], node.inputs.get("v"), node.state_of(KVState)
    layout, place = cache_of(at, state)
    n_rows = state.n_head_kv // layout.keys.heads  # of a cell
    v_dim = layout.values.dim if state.v_dim else 0
    unit = BLOCK if is_quantized(at.limits.kv_type) else 8
    units = -(-layout.keys.dim // unit) + -(-v_dim // unit)
    steps = at.memory.layout
    at.dispatch(
        f"kv_store.{at.limits.kv_type}",
        count=k,
        reads=[at.place(k), at.place(k if v is None else v)],
        writes=[place],
        push=[
            *(steps.sequences, steps.positions, steps.tables[state.window], steps.table_width, at.limits.block_size),
            *(n_rows, layout.keys.dim, v_dim),
            *(layout.keys.words, layout.values.words, layout.keys.scale_words, layout.values.scale_words),
            layout.v_offset,
        ],
        grid=at.grid(-(-at.rows(k) * n_rows * units // 64)),
    )


def attend_alone(at: Lowering, node: Node, q: Tensor, k: Tensor, rope: Node | None) -> bool:
    """Everything for a lone token, ``rope`` of q and k included; False where the kernel cannot do it."""
    v, sinks, state = node.inputs.get("v"), node.inputs.get("sinks"), node.state_of(KVState)
    quantized = is_quantized(at.limits.kv_type)
    if at.n_tokens > 1 or v is None or (quantized and (state.k_dim % BLOCK or state.v_dim % BLOCK)):
        return False
    if "subgroup_shuffle" not in at.device.features:
        return False
    layout, cache = cache_of(at, state)
    steps, n_head = at.memory.layout, int(q.shape[1])
    per_key = n_head // state.n_head_kv
    shape = decode_shape(at.device, max(state.k_dim, state.v_dim), n_head, state.n_head_kv, at.limits.n_ctx)
    n_groups = state.n_head_kv * -(-per_key // shape.heads)
    n_positions = min(at.limits.n_ctx, state.window or at.limits.n_ctx)
    n_parts = min(shape.max_parts, -(-n_positions // (shape.chunk * shape.rounds)))
    k_octets, v_octets = -(-state.k_dim // 8), -(-state.v_dim // 8)
    counters = at.constant(("attention counters", n_groups), lambda: np.zeros(n_groups, np.uint32))
    partial = at.scratch("attention parts", 4 * n_head * n_parts * (8 * v_octets + 4))
    at.dispatch(
        f"attention_decode.{at.limits.kv_type}",
        count=1,
        reads=[
            *(at.place(tensor) for tensor in (q, k, v)),
            counters if rope is None else turns(at, rope),
            counters if sinks is None else at.place(sinks),
        ],
        writes=[partial, counters, cache, at.place(node.output)],
        push=[
            *(steps.positions, steps.tables[state.window], steps.table_width, state.n_head_kv),
            *(layout.keys.words, layout.values.words, layout.keys.scale_words, layout.values.scale_words),
            *(layout.v_offset, state.k_dim, state.v_dim, layout.values.head_dim, state.window),
            float(node.attrs["scale"]),
            *((0, 1, 1.0) if rope is None else (2 * len(rope.attrs["freqs"]), pairs(rope)[1], rope.attrs["magnitude"])),
        ],
        constants=[
            *(shape.threads, at.device.subgroup_size, shape.lanes, shape.unroll, shape.rounds, shape.heads),
            *(k_octets, v_octets, sinks is not None),
            *(per_key, at.limits.block_size, _bits(node.attrs["softcap"])),
        ],
        grid=(n_parts, n_groups, 1),
        full_subgroups=True,
    )
    return True


def _n_parts(at: Lowering, state: KVState) -> int:
    """The most parts that a token's positions can lie in."""
    n_positions = min(at.limits.n_ctx, state.window) if state.window else at.limits.n_ctx
    return -(-n_positions // PART) + (1 if n_positions < at.limits.n_ctx else 0)


def _attend_in_parts(at: Lowering, node: Node) -> None:
    q, sinks, state = node.inputs["q"], node.inputs.get("sinks"), node.state_of(KVState)
    n_head, k_dim, v_dim = int(q.shape[1]), int(q.shape[2]), int(node.output.shape[2])
    per_key = n_head // state.n_head_kv
    heads = min(per_key, 8 if k_dim <= 256 else 4)
    n_parts = _n_parts(at, state)
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
        grid=(n_parts, state.n_head_kv * -(-per_key // heads), at.rows(q)),
    )
    if n_parts > 1:
        at.dispatch(
            "attention_merge",
            count=q,
            reads=[partial, y if sinks is None else at.place(sinks)],
            writes=[y],
            push=[at.memory.layout.positions, state.window, PART, n_parts, n_head, v_dim, part_words],
            constants=[64 if v_dim <= 64 else 128, sinks is not None],
            grid=(n_head, at.rows(q), 1),
        )


def _attend_on_matrix_units(at: Lowering, node: Node) -> bool:
    """False where they cannot: for the precision of float32, or for heads of another size."""
    q, sinks, state = node.inputs["q"], node.inputs.get("sinks"), node.state_of(KVState)
    k_dim, v_dim = int(q.shape[2]), int(node.output.shape[2])
    shape = attention_shape(at.device, k_dim, v_dim, UNIT)
    if not at.cooperative or at.limits.kv_type == "f32" or shape is None or at.device.subgroup_size % UNIT:
        return False
    if k_dim % UNIT or v_dim % UNIT or max(k_dim, v_dim) > MOST_VALUES:
        return False
    n_rows = at.rows(q) * (int(q.shape[1]) // state.n_head_kv)
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
        grid=(-(-n_rows // (UNIT * shape.subgroups)), state.n_head_kv, 1),
        full_subgroups=True,
    )
    return True


def _attend_in_tiles(at: Lowering, node: Node) -> None:
    q, sinks, state = node.inputs["q"], node.inputs.get("sinks"), node.state_of(KVState)
    k_quads, v_quads = -(-int(q.shape[2]) // 4), -(-int(node.output.shape[2]) // 4)
    rows_each = 4 if v_quads <= 32 else 2 if v_quads <= 64 else 1
    per_key = int(q.shape[1]) // state.n_head_kv
    _attend(
        at,
        "attention_tile",
        node,
        at.place(node.output),
        constants=[rows_each, k_quads, v_quads, sinks is not None],
        n_parts=1,
        grid=(-(-at.rows(q) * per_key // (16 * rows_each)), state.n_head_kv, 1),
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
    """A dispatch of a kernel with the arguments of shaders/attention.glsl."""
    q, sinks, state = node.inputs["q"], node.inputs.get("sinks"), node.state_of(KVState)
    layout, cache = cache_of(at, state)
    steps = at.memory.layout
    at.dispatch(
        f"{kernel}.{at.limits.kv_type}",
        count=q,
        reads=[at.place(q), cache, at.place(q if sinks is None else sinks)],
        writes=[target],
        push=[
            *(steps.sequences, steps.positions, steps.seq_starts, steps.tables[state.window]),
            *(steps.table_width, state.n_head_kv, int(q.shape[1]) // state.n_head_kv),
            *(layout.keys.words, layout.values.words, layout.keys.scale_words, layout.values.scale_words),
            *(layout.v_offset, state.k_dim, int(node.output.shape[2]), layout.values.head_dim, state.window),
            *(float(node.attrs["scale"]), n_parts),
        ],
        constants=[*constants, at.limits.block_size, _bits(node.attrs["softcap"])],
        grid=grid,
        full_subgroups=full_subgroups,
    )


def _bits(value: float) -> int:
    """A float32 as a specialization constant."""
    return int(np.float32(value).view(np.uint32))


def _claims(node: Node, limits: Limits) -> bool:
    """Causal attention over a cache of its own."""
    if not isinstance(node.state, KVState) or "k" not in node.inputs or not node.attrs["causal"]:
        return False
    special = node.attrs["chunk"] or node.attrs["slopes"] or "bias" in node.inputs
    return not special and can_hold(node.state, limits)


RULES = {"attention": Rule(_attention, _claims)}
