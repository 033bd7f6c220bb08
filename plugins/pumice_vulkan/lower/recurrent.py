"""Rules for operations with a recurrent state."""

from __future__ import annotations

import math
from dataclasses import replace

from pumice.plugin import Tensor, fixed
from pumice.plugin.unstable import Node, RecurrentState
from pumice_vulkan.lower.rule import Lowering, Rule, StateUse
from pumice_vulkan.memory import BufferSlice

LOCAL = 64
COLUMNS = 32  # columns per workgroup, as in linear_attention.comp
MOST_KEYS = 512  # maximum rows of a state, 64 of them in an invocation's registers
CONVOLVED = 16  # minimum tokens per invocation of conv1d.comp, or the number of taps
STATE_PARTS = 8  # of a state's rows: PARTS in linear_attention.comp; also the maximum tokens in shared memory


def _state(lowering: Lowering, node: Node) -> BufferSlice:
    """Return a float32 array with the state of each slot; kernels treat it as zeros where a sequence starts."""
    states, state = lowering.memory.states, node.state_of(RecurrentState)
    if state not in states:
        states[state] = lowering.memory.cache.take(4 * lowering.limits.n_slots * math.prod(state.shape))
    place: BufferSlice = states[state]
    return place


def convolved(lowering: Lowering, nodes: list[Node]) -> bool:
    """Compute a convolution followed by SiLU."""
    conv, silu = nodes
    _convolve(lowering, conv, silu.output, silu=True)
    return True


def _conv1d(lowering: Lowering, node: Node) -> None:
    _convolve(lowering, node, node.output)


def _convolve(lowering: Lowering, node: Node, result: Tensor, silu: bool = False) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    n_channels, n_taps = int(x.shape[-1]), int(weight.shape[1])
    places = {
        "x": lowering.place(x),
        "weight": lowering.place(weight),
        "bias": lowering.place(weight if bias is None else bias),
    }
    lowering.dispatch(
        "conv1d",
        count=x,
        reads=places,
        writes=_writes(lowering, node, result, places["x"]),
        push={**_steps(lowering), "n_channels": n_channels},
        constants=[bias is not None, n_taps, silu],
        grid=(
            *_grid(lowering, n_channels)[:2],
            1 if lowering.lone else -(-lowering.n_tokens // max(CONVOLVED, n_taps)),
        ),
    )


def _ssm_scan(lowering: Lowering, node: Node) -> None:
    n_channels = int(node.output.shape[-1])
    places = {name: lowering.place(tensor) for name, tensor in node.inputs.items()}
    lowering.dispatch(
        "ssm_scan",
        count=node.output,
        reads=places,
        writes=_writes(lowering, node, node.output, places["x"]),
        push={**_steps(lowering), "n_channels": n_channels},
        constants=[int(node.inputs["b"].shape[-1])],
        grid=_grid(lowering, n_channels),
    )


def _linear_attention(lowering: Lowering, node: Node) -> None:
    k, v, decay = (node.inputs[name] for name in ("k", "v", "decay"))
    (n_key_heads, k_dim), (n_heads, v_dim) = fixed(k.shape[1:]), fixed(v.shape[1:])
    n_decays = k_dim if len(decay.shape) == 3 else 1  # decay values per head
    push = {
        "n_heads": n_heads,
        "n_key_heads": n_key_heads,
        "tiled": int(node.attrs["tiled"]),
        "width": v_dim,
        "decay_token": n_heads * n_decays if len(decay.shape) > 1 else 0,
        "decay_head": n_decays,
    }
    names = ("q", "k", "v", "decay", "beta", "a", "b")
    places = {name: lowering.place(node.inputs.get(name, v)) for name in names}
    lowering.dispatch(
        "linear_attention",
        count=v,
        reads=places,
        writes=_writes(lowering, node, node.output, places["v"]),
        push={**_steps(lowering), **push},
        constants=[
            k_dim,
            n_decays > 1,
            "beta" in node.inputs,
            "a" in node.inputs,
            node.attrs["before"],
            _n_staged(lowering, node, n_decays > 1),
        ],
        grid=(n_heads * -(-v_dim // COLUMNS), min(lowering.n_tokens, lowering.limits.n_seqs), 1),
    )


def _n_staged(lowering: Lowering, node: Node, by_channel: bool) -> int:
    """Return how many tokens, with all their operands, fit in shared memory at a time.

    Results for one token of each sequence are those of several if the pipeline is the same.
    """
    n_keys = -(-int(node.inputs["k"].shape[-1]) // STATE_PARTS) * STATE_PARTS
    n_rows = 2 + by_channel + 2 * ("a" in node.inputs)
    per_token = 4 * (n_rows * n_keys + (1 + STATE_PARTS) * COLUMNS + 2)
    room = lowering.device.threadgroup_memory_bytes - 4 * 2 * STATE_PARTS * COLUMNS
    is_lone = lowering.lone and not lowering.memory.invariant
    return 1 if is_lone else max(1, min(STATE_PARTS, room // per_token))


def _writes(lowering: Lowering, node: Node, result: Tensor, operand: BufferSlice) -> dict[str, BufferSlice]:
    """Return the places that a kernel writes; where states are settled, an operand stands for the unused result."""
    settles = lowering.use is StateUse.SETTLE
    unused = replace(operand, constant=True)  # not written
    return {"state": _state(lowering, node), "y": unused if settles else lowering.place(result)}


def _steps(lowering: Lowering) -> dict[str, int]:
    """Return the push constants that locate tokens of sequences in the step block, and say what becomes of states."""
    layout, use = lowering.memory.layout, lowering.use
    return {
        "positions": layout.positions,
        "seq_starts": layout.seq_starts,
        "slots": layout.slots,
        "n_right": layout.n_taken if use is StateUse.SETTLE else 0,
        "stores": int(use is not StateUse.KEEP),
    }


def _grid(lowering: Lowering, n_channels: int) -> tuple[int, int, int]:
    return -(-n_channels // LOCAL), min(lowering.n_tokens, lowering.limits.n_seqs), 1


RULES = {
    "conv1d": Rule(_conv1d),
    "ssm_scan": Rule(_ssm_scan),
    "linear_attention": Rule(_linear_attention, lambda node, limits: int(node.inputs["k"].shape[-1]) <= MOST_KEYS),
}
