"""Operations with a recurrent state: ``[slots, ...]``. A sequence at position 0 starts from zeros.

Sequences of the same length are computed at once, token after token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.step import At, Run


class Recurrent:
    """The state of each slot."""

    def __init__(self, n_slots: int, shape: tuple[int, ...]) -> None:
        self.array = mx.zeros((n_slots, *shape), mx.float32)

    @property
    def arrays(self) -> list[mx.array]:
        return [self.array]

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def clear(self) -> None:
        self.array = mx.zeros(self.array.shape, mx.float32)


def conv1d(x: mx.array, weight: mx.array, bias: mx.array | None, at: At) -> mx.array:
    width = weight.shape[1]
    results = []
    for run, slots, state in _runs(at):
        history = mx.concatenate([state, at.rows_of(x, run)], axis=1)  # [n, w - 1 + t, c]
        taps = [history[:, i : i + run.length] * weight[:, i] for i in range(width)]
        results.append((run, sum(taps[1:], taps[0])))
        at.state.array[slots] = history[:, run.length :]
    y = at.joined(results)
    return y if bias is None else y + bias


def ssm_scan(x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array, d: mx.array, at: At) -> mx.array:
    results = []
    for run, slots, h in _runs(at):
        xs, dts, bs, cs = (at.rows_of(each, run) for each in (x, dt, b, c))
        decay = mx.exp(dts[..., None] * a)  # [n, t, e, m]
        added = (dts * xs)[..., None] * bs[:, :, None]
        states = []
        for t in range(run.length):
            h = h * decay[:, t] + added[:, t]
            states.append(h)
        y = (mx.stack(states, axis=1) @ cs[..., None])[..., 0]
        results.append((run, y + d * xs))
        at.state.array[slots] = h
    return at.joined(results)


def linear_attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    decay: mx.array,
    beta: mx.array | None,
    a: mx.array | None,
    b: mx.array | None,
    at: At,
    before: bool,
    tiled: bool,
) -> mx.array:
    n_heads, n_key_heads = v.shape[1], k.shape[1]
    if n_heads != n_key_heads:
        heads = np.arange(n_heads)
        heads = heads % n_key_heads if tiled else heads // (n_heads // n_key_heads)
        order = at.step.array(("heads", n_heads, n_key_heads, tiled), lambda: heads)
        q, k = q[:, order], k[:, order]
    decay = mx.broadcast_to(decay, v.shape[:2]) if decay.ndim == 1 else decay
    decay = decay[:, :, None, None] if decay.ndim == 2 else decay[..., None]
    results = []
    for run, slots, s in _runs(at):
        rows = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta, "a": a, "b": b}
        mine = {name: at.rows_of(each, run) for name, each in rows.items() if each is not None}
        ys = []
        for t in range(run.length):
            now = {name: each[:, t] for name, each in mine.items()}
            old, s = s, _updated(s, now)
            ys.append(_read(old if before else s, now["q"]))
        results.append((run, mx.stack(ys, axis=1)))
        at.state.array[slots] = s
    return at.joined(results)


def _updated(s: mx.array, now: dict[str, mx.array]) -> mx.array:
    """The states ``[n, h, k_dim, v_dim]`` after a token."""
    s = s * now["decay"]
    added = now["v"]
    if "beta" in now:
        added = now["beta"][..., None] * (added - _read(s, now["k"]))
    more = now["b"][..., None] * _read(s, now["a"])[..., None, :] if "a" in now else 0
    return s + now["k"][..., None] * added[..., None, :] + more


def _read(s: mx.array, q: mx.array) -> mx.array:
    """What a row of each head ``[n, h, k_dim]`` finds in the states: ``[n, h, v_dim]``."""
    return (q[..., None, :] @ s)[..., 0, :]


def _runs(at: At) -> Iterator[tuple[Run, mx.array, mx.array]]:
    """Runs with their slots and the states there, zeros for sequences that begin."""
    for run in at.step.runs():
        slots = _slots(at, run)
        yield run, slots, _states(at, run, slots)


def _slots(at: At, run: Run) -> mx.array:
    return at.step.array(("slots", run.key), lambda: run.batch.slots[run.seqs])


def _states(at: At, run: Run, slots: mx.array) -> mx.array:
    state: mx.array = at.state.array[slots]
    begins = run.positions[:, 0] == 0
    if not begins.any():
        return state
    begun = at.step.array(("begins", run.key), lambda: begins)
    return mx.where(begun.reshape(-1, *[1] * (state.ndim - 1)), mx.array(0.0), state)


RECURRENT_OPS: dict[str, Callable[..., Any]] = {
    "conv1d": conv1d,
    "ssm_scan": ssm_scan,
    "linear_attention": linear_attention,
}
