"""Operations with a recurrent state ``[slots, ...]``. A sequence at position 0 starts from zeros.

Sequences of equal length are computed together, token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.step import Evaluation, Run


class Recurrent:
    """The state of each slot."""

    def __init__(self, n_slots: int, shape: tuple[int, ...]) -> None:
        self.array = mx.zeros((n_slots, *shape), mx.float32)

    @property
    def arrays(self) -> list[mx.array]:
        return [self.array]

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Take other arrays for ``arrays``."""
        (self.array,) = arrays

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def clear(self) -> None:
        self.array = mx.zeros(self.array.shape, mx.float32)


def conv1d(x: mx.array, weight: mx.array, bias: mx.array | None, evaluation: Evaluation) -> mx.array:
    width = weight.shape[1]
    results = []
    for run, slots, state in _runs(evaluation):
        history = mx.concatenate([state, evaluation.rows_of(x, run)], axis=1)  # [n, w - 1 + t, c]
        taps = [history[:, i : i + run.length] * weight[:, i] for i in range(width)]
        results.append((run, sum(taps[1:], taps[0])))
        evaluation.state.array[slots] = history[:, run.length :]
    y = evaluation.joined(results)
    return y if bias is None else y + bias


def ssm_scan(
    x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array, d: mx.array, evaluation: Evaluation
) -> mx.array:
    results = []
    for run, slots, h in _runs(evaluation):
        xs, dts, bs, cs = (evaluation.rows_of(rows, run) for rows in (x, dt, b, c))
        decay = mx.exp(dts[..., None] * a)  # [n, t, e, m]
        added = (dts * xs)[..., None] * bs[:, :, None]
        states = []
        for t in range(run.length):
            h = h * decay[:, t] + added[:, t]
            states.append(h)
        y = (mx.stack(states, axis=1) @ cs[..., None])[..., 0]
        results.append((run, y + d * xs))
        evaluation.state.array[slots] = h
    return evaluation.joined(results)


def linear_attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    decay: mx.array,
    beta: mx.array | None,
    a: mx.array | None,
    b: mx.array | None,
    evaluation: Evaluation,
    before: bool,
    tiled: bool,
) -> mx.array:
    n_heads, n_key_heads = v.shape[1], k.shape[1]
    if n_heads != n_key_heads:
        heads = np.arange(n_heads)
        heads = heads % n_key_heads if tiled else heads // (n_heads // n_key_heads)
        order = evaluation.step.array(("heads", n_heads, n_key_heads, tiled), lambda _: heads)
        q, k = q[:, order], k[:, order]
    decay = mx.broadcast_to(decay, v.shape[:2]) if decay.ndim == 1 else decay
    decay = decay[:, :, None, None] if decay.ndim == 2 else decay[..., None]
    results = []
    for run, slots, s in _runs(evaluation):
        rows = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta, "a": a, "b": b}
        mine = {name: evaluation.rows_of(tensor, run) for name, tensor in rows.items() if tensor is not None}
        ys = []
        for t in range(run.length):
            now = {name: tensor[:, t] for name, tensor in mine.items()}
            old, s = s, _updated(s, now)
            ys.append(_read(old if before else s, now["q"]))
        results.append((run, mx.stack(ys, axis=1)))
        evaluation.state.array[slots] = s
    return evaluation.joined(results)


def _updated(s: mx.array, now: dict[str, mx.array]) -> mx.array:
    """Return the states ``[n, h, k_dim, v_dim]`` after a token."""
    s = s * now["decay"]
    added = now["v"]
    if "beta" in now:
        added = now["beta"][..., None] * (added - _read(s, now["k"]))
    more = now["b"][..., None] * _read(s, now["a"])[..., None, :] if "a" in now else 0
    return s + now["k"][..., None] * added[..., None, :] + more


def _read(s: mx.array, q: mx.array) -> mx.array:
    """Multiply a row of each head ``[n, h, k_dim]`` by the states: ``[n, h, v_dim]``."""
    return (q[..., None, :] @ s)[..., 0, :]


def _runs(evaluation: Evaluation) -> Iterator[tuple[Run, mx.array, mx.array]]:
    """Yield runs with their slots and states; zeros for sequences that start."""
    for run in evaluation.step.runs():
        slots = _slots(evaluation, run)
        yield run, slots, _states(evaluation, run, slots)


def _slots(evaluation: Evaluation, run: Run) -> mx.array:
    return evaluation.step.array(("slots", run.key), lambda step: step.batch.slots[step.run(run.key).seqs])


def _states(evaluation: Evaluation, run: Run, slots: mx.array) -> mx.array:
    state: mx.array = evaluation.state.array[slots]
    if not evaluation.step.alike and (run.positions[:, 0] > 0).all():
        return state
    begun = evaluation.step.array(("begins", run.key), lambda step: step.run(run.key).positions[:, 0] == 0)
    return mx.where(begun.reshape(-1, *[1] * (state.ndim - 1)), mx.array(0.0), state)


RECURRENT_OPS: dict[str, Callable[..., Any]] = {
    "conv1d": conv1d,
    "ssm_scan": ssm_scan,
    "linear_attention": linear_attention,
}
