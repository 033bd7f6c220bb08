"""Rules for operations with a recurrent state."""

from __future__ import annotations

import math

from pumice.plugin import Node, RecurrentState
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.memory import Place

LOCAL = 64


def _state(at: Lowering, node: Node) -> Place:
    """A float32 array for each slot; kernels take it for zeros where a sequence begins."""
    states, state = at.memory.states, node.state_of(RecurrentState)
    if state not in states:
        states[state] = at.memory.cache.take(4 * at.limits.n_slots * math.prod(state.shape))
    place: Place = states[state]
    return place


def _conv1d(at: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    n_channels = int(x.shape[-1])
    at.dispatch(
        "conv1d",
        count=x,
        reads={"x": at.place(x), "weight": at.place(weight), "bias": at.place(weight if bias is None else bias)},
        writes={"state": _state(at, node), "y": at.place(node.output)},
        push={**_steps(at), "n_channels": n_channels, "taps": int(weight.shape[1])},
        constants=[bias is not None],
        grid=_grid(at, n_channels),
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


def _steps(at: Lowering) -> dict[str, int]:
    """Where the step block says which tokens are whose."""
    layout = at.memory.layout
    return {"positions": layout.positions, "seq_starts": layout.seq_starts, "slots": layout.slots}


def _grid(at: Lowering, n_channels: int) -> tuple[int, int, int]:
    return -(-n_channels // LOCAL), min(at.n_tokens, at.limits.n_seqs), 1


RULES = {"conv1d": Rule(_conv1d), "ssm_scan": Rule(_ssm_scan)}
