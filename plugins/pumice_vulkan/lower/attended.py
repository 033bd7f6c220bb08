"""Location of a node's keys and values: in the paged KV cache, or in the step's own activations."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin.unstable import KVState, Node
from pumice_vulkan.kv_cache import CacheLayout, Rows, is_quantized
from pumice_vulkan.lower.attention_terms import rotation_constants
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice

ROTATED = 64  # values that are rotated together, at most


@dataclass(frozen=True)
class Attended:
    """Keys and values with the parameters of shaders/attention_arguments.glsl."""

    kv_type: str
    layout: CacheLayout
    place: BufferSlice  # place of the keys
    values: BufferSlice
    n_head_kv: int
    table: int = 0  # index of the block table in the step block
    of_step: bool = False


def cache_of(lowering: Lowering, state: KVState) -> tuple[CacheLayout, BufferSlice]:
    states = lowering.memory.states
    if state not in states:
        layout = CacheLayout.of(state, lowering.limits)
        states[state] = layout, lowering.memory.cache.take(4 * layout.words)
    layout_and_place: tuple[CacheLayout, BufferSlice] = states[state]
    return layout_and_place


def attended(lowering: Lowering, node: Node) -> Attended:
    if node.state is None:
        return _of_step(lowering, node)
    state = node.state_of(KVState)
    layout, place = cache_of(lowering, state)
    steps = lowering.memory.layout
    table = steps.memory_table if state.is_memory else steps.tables[state.window]
    return Attended(lowering.limits.kv_type, layout, place, place, state.n_head_kv, table)


def _of_step(lowering: Lowering, node: Node) -> Attended:
    """Return activations, float32 ``[t, heads, d]``, as a cache with blocks of one position."""
    k = node.inputs["k"]
    v = node.inputs.get("v", k)
    keys, values = (Rows(int(tensor.shape[2]), 0, 1, int(tensor.shape[2])) for tensor in (k, v))
    k_place, v_place = lowering.place(k), lowering.place(v)
    layout = CacheLayout(keys, values, v_place.offset - k_place.offset, 0)
    return Attended("f32", layout, k_place, v_place, int(k.shape[1]), of_step=True)


def halved(lowering: Lowering, node: Node, multiple: int) -> Attended:
    """Convert the keys and values of a node without a cache to float16; heads are padded to a ``multiple``."""
    k = node.inputs["k"]
    tensors = [k, node.inputs.get("v", k)]
    k_dim, v_dim = dims = [-(-int(tensor.shape[2]) // multiple) * multiple for tensor in tensors]
    n_heads, n_rows = int(k.shape[1]), lowering.rows(k)
    sizes = [n_rows * n_heads * dim // 2 for dim in dims]  # in words
    memory = lowering.scratch("float16 keys and values", 4 * sum(sizes))
    keys, values = memory.part(0, sizes[0]), memory.part(sizes[0], sizes[1])
    for tensor, place, dim in zip(tensors, (keys, values), dims, strict=True):
        lowering.dispatch(
            "rows_half",
            count=tensor,
            reads={"x": lowering.place(tensor)},
            writes={"y": place},
            push={"heads": n_heads, "quads": int(tensor.shape[2]) // 4, "padded": dim // 4},
            grid=lowering.grid(-(-n_rows * n_heads * dim // 4 // 128)),
        )
    layout = CacheLayout(Rows(k_dim // 2, 0, 1, k_dim), Rows(v_dim // 2, 0, 1, v_dim), sizes[0], 0)
    return Attended("f16", layout, keys, values, n_heads, of_step=True)


def store(lowering: Lowering, node: Node) -> None:
    """Append the step's keys and values to the cache."""
    k, v, state = node.inputs["k"], node.inputs.get("v"), node.state_of(KVState)
    layout, place = cache_of(lowering, state)
    n_rows = state.n_head_kv // layout.keys.heads  # rows per cell
    v_dim = layout.values.dim if state.v_dim else 0
    share, each = (ROTATED, 4) if is_quantized(lowering.limits.kv_type) else (8, 8)  # as in shaders/kv_store.comp
    units = (-(-layout.keys.dim // share) + -(-v_dim // share)) * share // each
    steps = lowering.memory.layout
    lowering.dispatch(
        f"kv_store.{lowering.limits.kv_type}",
        count=k,
        reads={"k": lowering.place(k), "v": lowering.place(k if v is None else v)},
        writes={"cache": place},
        push={
            "sequences": steps.sequences,
            "positions": steps.positions,
            "block_size": lowering.limits.block_size,
            "table": steps.tables[state.window],
            "table_width": steps.table_width,
            "n_head": n_rows,
            "k_dim": layout.keys.dim,
            "v_dim": v_dim,
            **layout.push,
        },
        constants=rotation_constants(node, lowering.limits.kv_type),
        grid=lowering.grid(-(-lowering.rows(k) * n_rows * units // 64)),
    )
