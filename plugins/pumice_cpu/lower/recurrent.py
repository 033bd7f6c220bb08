"""Rules for operations with recurrent states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin import N_SEQS, Node, RecurrentState, fixed
from pumice_cpu.lower.rule import POSITIONS, SEQ_STARTS, SLOTS, Lowering, Rule


def _conv1d(at: Lowering, node: Node) -> None:
    weight = node.weight("weight")
    width, n_taps = fixed(weight.shape)
    taps = np.ascontiguousarray(weight.dequantize().T)
    added = node.weight("bias").dequantize() if "bias" in node.inputs else np.zeros(width, np.float32)
    at.add(
        "recurrent.conv1d",
        **_sequences(at),
        x=at.address(node.inputs["x"]),
        weight=at.hold(taps),
        bias=at.hold(added),
        state=_state(at, node, (n_taps - 1, width)),
        y=at.address(node.output),
        n_taps=n_taps,
        width=width,
    )


def _ssm_scan(at: Lowering, node: Node) -> None:
    x, dt, _, b, c, d = node.operands()
    a = node.weight("a")
    width, n_state = fixed(a.shape)
    at.add(
        "recurrent.ssm_scan",
        **_sequences(at),
        x=at.address(x),
        dt=at.address(dt),
        a=at.hold(np.ascontiguousarray(a.dequantize().T)),
        b=at.address(b),
        c=at.address(c),
        d=at.address(d),
        state=_state(at, node, (n_state, width)),
        y=at.address(node.output),
        n_state=n_state,
        width=width,
    )


def _linear_attention(at: Lowering, node: Node) -> None:
    k, v, decay = (node.inputs[name] for name in ("k", "v", "decay"))
    (n_key_heads, k_dim), (n_heads, v_dim) = fixed(k.shape[1:]), fixed(v.shape[1:])
    each = k_dim if len(decay.shape) == 3 else 1  # values of a head's decay
    does = {"c": each > 1, "d": "beta" in node.inputs, "r": "a" in node.inputs, "b": node.attrs["before"]}
    at.add(
        "recurrent.linear_attention:" + ("".join(letter for letter, wanted in does.items() if wanted) or "-"),
        **_sequences(at),
        **{name: at.address(node.inputs.get(name, v)) for name in ("q", "k", "v", "decay", "beta", "a", "b")},
        state=_state(at, node, (n_heads, k_dim, v_dim)),
        y=at.address(node.output),
        n_heads=n_heads,
        n_key_heads=n_key_heads,
        tiled=int(node.attrs["tiled"]),
        n_keys=k_dim,
        width=v_dim,
        decay_token=4 * n_heads * each if len(decay.shape) > 1 else 0,
        decay_head=4 * each,
    )


#: What the rule makes of Mamba 2 and lightning attention, gated linear attention, RWKV 6, Kimi Linear, RWKV 7 and gated
#: delta nets.
_KINDS = ("-", "c", "cb", "cd", "cr", "d")


def kernels() -> Iterator[str]:
    yield from (f"recurrent.linear_attention:{kind}" for kind in _KINDS)


def _sequences(at: Lowering) -> dict[str, int]:
    return {
        "n_seqs": at.size(N_SEQS),
        "seq_starts": at.of_step(SEQ_STARTS),
        "slots": at.of_step(SLOTS),
        "positions": at.of_step(POSITIONS),
    }


def _state(at: Lowering, node: Node, shape: tuple[int, ...]) -> int:
    """Address of a state with its channels last; all tables share it."""
    state = node.state_of(RecurrentState)
    if state not in at.states:
        at.states[state] = np.zeros((at.limits.n_slots, *shape), np.float32)
    return int(at.states[state].ctypes.data)


RULES = {"conv1d": Rule(_conv1d), "ssm_scan": Rule(_ssm_scan), "linear_attention": Rule(_linear_attention)}
