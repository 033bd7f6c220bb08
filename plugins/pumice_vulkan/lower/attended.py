"""Where the keys and values lie that a node attends to: in the paged KV cache, or of the step alone as computed."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import KVState, Node
from pumice_vulkan.kv_cache import BLOCK, CacheLayout, Rows, is_quantized
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import Place


@dataclass(frozen=True)
class Attended:
    """Keys and values, as shaders/attention_arguments.glsl wants to know them."""

    kv_type: str
    layout: CacheLayout
    place: Place  # of the keys
    values: Place
    n_head_kv: int
    table: int = 0  # word of the step block with the block table
    of_step: bool = False


def cache_of(at: Lowering, state: KVState) -> tuple[CacheLayout, Place]:
    states = at.memory.states
    if state not in states:
        layout = CacheLayout.of(state, at.limits)
        states[state] = layout, at.memory.cache.take(4 * layout.words)
    found: tuple[CacheLayout, Place] = states[state]
    return found


def attended(at: Lowering, node: Node) -> Attended:
    if node.state is None:
        return _of_step(at, node)
    state = node.state_of(KVState)
    layout, place = cache_of(at, state)
    steps = at.memory.layout
    table = steps.memory_table if state.is_memory else steps.tables[state.window]
    return Attended(at.limits.kv_type, layout, place, place, state.n_head_kv, table)


def _of_step(at: Lowering, node: Node) -> Attended:
    """Activations as they lie, float32 ``[t, heads, d]``: a cache with blocks of one position."""
    k = node.inputs["k"]
    v = node.inputs.get("v", k)
    keys, values = (Rows(int(each.shape[2]), 0, 1, int(each.shape[2])) for each in (k, v))
    k_place, v_place = at.place(k), at.place(v)
    layout = CacheLayout(keys, values, v_place.offset - k_place.offset, 0)
    return Attended("f32", layout, k_place, v_place, int(k.shape[1]), of_step=True)


def store(at: Lowering, node: Node) -> None:
    """Append the step's keys and values to the cache."""
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
        reads={"k": at.place(k), "v": at.place(k if v is None else v)},
        writes={"cache": place},
        push={
            "sequences": steps.sequences,
            "positions": steps.positions,
            "block_size": at.limits.block_size,
            "table": steps.tables[state.window],
            "table_width": steps.table_width,
            "n_head": n_rows,
            "k_dim": layout.keys.dim,
            "v_dim": v_dim,
            **layout.push,
        },
        grid=at.grid(-(-at.rows(k) * n_rows * units // 64)),
    )
