"""Rules for operations with recurrent states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin import N_SEQS, fixed
from pumice.plugin.unstable import Node, RecurrentState
from pumice_cpu.lower.rule import POSITIONS, SEQ_STARTS, SLOTS, Lowering, Rule


def _conv1d(lowering: Lowering, node: Node) -> None:
    weight = node.weight("weight")
    width, n_taps = fixed(weight.shape)
    taps = np.ascontiguousarray(weight.dequantize().T)
    added = node.weight("bias").dequantize() if "bias" in node.inputs else np.zeros(width, np.float32)
    lowering.add(
        "recurrent.conv1d",
        **_sequences(lowering),
        x=node.inputs["x"],
        weight=taps,
        bias=added,
        state=_state(lowering, node, (n_taps - 1, width)),
        y=node.output,
        n_taps=n_taps,
        width=width,
    )


def _ssm_scan(lowering: Lowering, node: Node) -> None:
    a = node.weight("a")
    width, n_state = fixed(a.shape)
    lowering.add(
        "recurrent.ssm_scan",
        **_sequences(lowering),
        **{name: node.inputs[name] for name in ("x", "dt", "b", "c", "d")},
        a=np.ascontiguousarray(a.dequantize().T),
        state=_state(lowering, node, (n_state, width)),
        y=node.output,
        n_state=n_state,
        width=width,
    )


def _linear_attention(lowering: Lowering, node: Node) -> None:
    k, v, decay = (node.inputs[name] for name in ("k", "v", "decay"))
    (n_key_heads, k_dim), (n_heads, v_dim) = fixed(k.shape[1:]), fixed(v.shape[1:])
    n_decays = k_dim if len(decay.shape) == 3 else 1  # decay values per head
    does = {"c": n_decays > 1, "d": "beta" in node.inputs, "r": "a" in node.inputs, "b": node.attrs["before"]}
    lowering.add(
        "recurrent.linear_attention:" + ("".join(letter for letter, is_used in does.items() if is_used) or "-"),
        **_sequences(lowering),
        **{name: node.inputs.get(name, v) for name in ("q", "k", "v", "decay", "beta", "a", "b")},
        state=_state(lowering, node, (n_heads, k_dim, v_dim)),
        y=node.output,
        n_heads=n_heads,
        n_key_heads=n_key_heads,
        tiled=int(node.attrs["tiled"]),
        n_keys=k_dim,
        width=v_dim,
        decay_token=4 * n_heads * n_decays if len(decay.shape) > 1 else 0,
        decay_head=4 * n_decays,
    )


#: The variants in use: Mamba 2 and lightning attention, gated linear attention, RWKV 6, Kimi Linear, RWKV 7, gated
#: delta nets.
_KINDS = ("-", "c", "cb", "cd", "cr", "d")


def kernels() -> Iterator[str]:
    yield from (f"recurrent.linear_attention:{kind}" for kind in _KINDS)


def _sequences(lowering: Lowering) -> dict[str, int]:
    return {
        "n_seqs": lowering.size(N_SEQS),
        "seq_starts": lowering.of_step(SEQ_STARTS),
        "slots": lowering.of_step(SLOTS),
        "positions": lowering.of_step(POSITIONS),
    }


def _state(lowering: Lowering, node: Node, shape: tuple[int, ...]) -> int:
    """Return the address of a state with its channels last; all tables share it."""
    state = node.state_of(RecurrentState)
    if state not in lowering.states:
        lowering.states[state] = np.zeros((lowering.limits.n_slots, *shape), np.float32)
    return int(lowering.states[state].ctypes.data)


RULES = {"conv1d": Rule(_conv1d), "ssm_scan": Rule(_ssm_scan), "linear_attention": Rule(_linear_attention)}
