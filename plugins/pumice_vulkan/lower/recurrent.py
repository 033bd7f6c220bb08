"""Rules for operations with a recurrent state."""

from __future__ import annotations

import math

from pumice.plugin import Node, RecurrentState, Tensor, fixed
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.memory import Place

LOCAL = 64
COLUMNS = 32  # of a workgroup, as in linear_attention.comp
MOST_KEYS = 512  # rows of a state, 64 of them in an invocation's registers
CONVOLVED = 16  # tokens that an invocation of conv1d.comp takes at least; as many as there are taps
PARTS = 8  # of a state's rows, as in linear_attention.comp: the most tokens that it has in shared memory at a time


def _state(at: Lowering, node: Node) -> Place:
    """A float32 array for each slot; kernels take it for zeros where a sequence begins."""
    states, state = at.memory.states, node.state_of(RecurrentState)
    if state not in states:
        states[state] = at.memory.cache.take(4 * at.limits.n_slots * math.prod(state.shape))
    place: Place = states[state]
    return place


def convolved(at: Lowering, nodes: list[Node]) -> bool:
    """A convolution with the SiLU of it."""
    conv, silu = nodes
    _convolve(at, conv, silu.output, silu=True)
    return True


def _conv1d(at: Lowering, node: Node) -> None:
    _convolve(at, node, node.output)


def _convolve(at: Lowering, node: Node, result: Tensor, silu: bool = False) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    n_channels, n_taps = int(x.shape[-1]), int(weight.shape[1])
    at.dispatch(
        "conv1d",
        count=x,
        reads={"x": at.place(x), "weight": at.place(weight), "bias": at.place(weight if bias is None else bias)},
        writes={"state": _state(at, node), "y": at.place(result)},
        push={**_steps(at), "n_channels": n_channels},
        constants=[bias is not None, n_taps, silu],
        grid=(*_grid(at, n_channels)[:2], 1 if at.lone else -(-at.n_tokens // max(CONVOLVED, n_taps))),
    )


def _ssm_scan(at: Lowering, node: Node) -> None:
    n_channels = int(node.output.shape[-1])
    at.dispatch(
        "ssm_scan",
        count=node.output,
        reads={name: at.place(tensor) for name, tensor in node.inputs.items()},
        writes={"state": _state(at, node), "y": at.place(node.output)},
        push={**_steps(at), "n_channels": n_channels},
        constants=[int(node.inputs["b"].shape[-1])],
        grid=_grid(at, n_channels),
    )


def _linear_attention(at: Lowering, node: Node) -> None:
    k, v, decay = (node.inputs[name] for name in ("k", "v", "decay"))
    (n_key_heads, k_dim), (n_heads, v_dim) = fixed(k.shape[1:]), fixed(v.shape[1:])
    each = k_dim if len(decay.shape) == 3 else 1  # values of a head's decay
    push = {
        "n_heads": n_heads,
        "n_key_heads": n_key_heads,
        "tiled": int(node.attrs["tiled"]),
        "width": v_dim,
        "decay_token": n_heads * each if len(decay.shape) > 1 else 0,
        "decay_head": each,
    }
    at.dispatch(
        "linear_attention",
        count=v,
        reads={name: at.place(node.inputs.get(name, v)) for name in ("q", "k", "v", "decay", "beta", "a", "b")},
        writes={"state": _state(at, node), "y": at.place(node.output)},
        push={**_steps(at), **push},
        constants=[
            k_dim,
            each > 1,
            "beta" in node.inputs,
            "a" in node.inputs,
            node.attrs["before"],
            _n_staged(at, node, each > 1),
        ],
        grid=(n_heads * -(-v_dim // COLUMNS), min(at.n_tokens, at.limits.n_seqs), 1),
    )


def _n_staged(at: Lowering, node: Node, by_channel: bool) -> int:
    """How many tokens are in shared memory at a time, with all that they bring."""
    n_keys = -(-int(node.inputs["k"].shape[-1]) // PARTS) * PARTS
    n_rows = 2 + by_channel + 2 * ("a" in node.inputs)
    per_token = 4 * (n_rows * n_keys + (1 + PARTS) * COLUMNS + 2)
    room = at.device.threadgroup_memory_bytes - 4 * 2 * PARTS * COLUMNS
    return 1 if at.lone else max(1, min(PARTS, room // per_token))


def _steps(at: Lowering) -> dict[str, int]:
    """Where the step block says which tokens are whose."""
    layout = at.memory.layout
    return {"positions": layout.positions, "seq_starts": layout.seq_starts, "slots": layout.slots}


def _grid(at: Lowering, n_channels: int) -> tuple[int, int, int]:
    return -(-n_channels // LOCAL), min(at.n_tokens, at.limits.n_seqs), 1


RULES = {
    "conv1d": Rule(_conv1d),
    "ssm_scan": Rule(_ssm_scan),
    "linear_attention": Rule(_linear_attention, lambda node, limits: int(node.inputs["k"].shape[-1]) <= MOST_KEYS),
}
