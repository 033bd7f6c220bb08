"""Token selection on the device by ``Pick``, so that several steps run without the host."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Ahead, Ask, Raw, Restriction
from pumice_mlx import pick_kernel

MAX_BEST = 64
MAX_STEPS = 16
MAX_BIASES = 64  # of a sequence's logits
MAX_ADDED = 256  # biases of a restriction
GROUP = 64  # logits of which the highest decides whether any is among the highest of all
SCALARS = 2  # values that MLX's CUDA backend keeps where host and device read them

Chosen = tuple[mx.array, mx.array]
"""Ids, bits of logits and, of more than one, the picked token of each row ``[n_rows, width]``; the picked tokens."""


class Picker:
    """The selections of consecutive steps, and their results.

    The rows of ``Ask`` are those of the logits; its numbers and the parameters of its picks are one copy to the device.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._chosen: list[Chosen] = []
        self._raw: list[mx.array] = []
        self._packed: list[mx.array] = []
        self._waiting: mx.array | None = None  # logits that wait for their restrictions
        self._is_greedy = ask.n_best == 1
        self._columns = None if self._is_greedy else mx.array(_parameters(ask))
        self._biases = [(row, *bias) for row, pick in enumerate(ask.picks) for bias in pick.biases]

    @property
    def is_waiting(self) -> bool:
        """True if restrictions must arrive before tokens are picked."""
        return not self._ask.restrictions and any(pick.restricted for pick in self._ask.picks)

    @property
    def tokens(self) -> mx.array:
        """The lazy tokens of the latest step, one for each row."""
        _, picked = self._chosen[-1]
        return picked

    @property
    def latest(self) -> Sequence[mx.array]:
        """The lazy results of the latest step, and after the last one of all."""
        return [*self._chosen[-1], *self._packed] if self._waiting is None else [self._waiting]

    def pick(self, logits: mx.array) -> None:
        """Pick the token of each row ``[n_rows, n_vocab]``, or keep the rows until restrictions arrive."""
        if self.is_waiting:
            self._waiting = logits
        else:
            self._pick(logits, self._ask.restrictions)

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        """Pick tokens of the rows that wait for restrictions."""
        assert self._waiting is not None, "restrictions belong to a single step that waits for them"
        logits, self._waiting = self._waiting, None
        self._pick(logits, restrictions)

    def _pick(self, logits: mx.array, restrictions: Sequence[Restriction]) -> None:
        adjusted = self._adjusted(logits, restrictions)
        chosen, picked = self._choose(adjusted)
        self._chosen.append((chosen, picked))
        if self._ask.n_raw:
            self._raw.append(_raw(logits, picked, self._ask.n_raw))
        if len(self._chosen) == len(self._ask.numbers):
            self._packed = self._pack()

    def _choose(self, logits: mx.array) -> Chosen:
        step, n_best = len(self._chosen), self._ask.n_best
        if pick_kernel.works():
            return pick_kernel.choose(logits, self._columns, n_best, step)
        ids, best = _best(logits, n_best)
        if self._columns is None:
            return mx.concatenate([ids, best.view(mx.int32)], axis=-1), ids[:, 0]
        index = _index(best, self._columns[:4, :, None], self._columns[4 + step, :, None])
        picked = mx.take_along_axis(ids, index, axis=-1)
        return mx.concatenate([ids, best.view(mx.int32), picked], axis=-1), picked[:, 0]

    def _pack(self) -> list[mx.array]:
        """Return arrays with the results of all steps if the device copies them to the host.

        The device computes them before steps that are submitted behind these.
        """
        chosen = [chosen for chosen, _ in self._chosen]
        packed = [mx.stack(chosen)] if chosen[0].size > SCALARS or self._raw else []
        return [*packed, mx.stack(self._raw)] if self._raw else packed

    def _adjusted(self, logits: mx.array, restrictions: Sequence[Restriction]) -> mx.array:
        added = self._biases + [(row, *bias) for row, one in enumerate(restrictions) for bias in one.biases]
        if added:
            rows, ids, values = zip(*added, strict=True)
            logits = logits.at[mx.array(rows), mx.array(ids)].add(mx.array(values, mx.float32))
        if any(one.mask is not None for one in restrictions):
            logits = mx.where(_allowed(restrictions, logits.shape[-1]), logits, mx.array(-mx.inf))
        return logits

    def results(self) -> Ahead:
        """Wait for the steps, and return their results."""
        chosen, *raw = [np.array(array) for array in self._packed] or [
            np.stack([np.array(chosen) for chosen, _ in self._chosen])
        ]
        n = self._ask.n_best
        picked = chosen[..., 0 if n == 1 else -1]
        return Ahead(chosen[..., :n], _as_floats(chosen[..., n : 2 * n]), picked, _raw_of(raw[0]) if raw else None)


def _index(best: mx.array, parameters: mx.array, number: mx.array) -> mx.array:
    """Index of the picked logit among the sorted highest ``[n_rows, n_best]``, as int32 ``[n_rows, 1]``."""
    top_k, top_p, min_p, temperature = parameters
    low, places = mx.array(-mx.inf), mx.arange(best.shape[-1])
    best = mx.where(places < top_k, best, low)
    p = mx.softmax(best, axis=-1)
    kept = (mx.cumsum(p, axis=-1) - p < top_p) & (p >= min_p * p[:, :1])
    warm = mx.maximum(temperature, 1e-10)
    q = mx.softmax(mx.where(kept, (best - best[:, :1]) / warm, low), axis=-1)
    n_below = mx.sum(mx.cumsum(q, axis=-1) <= number, axis=-1, keepdims=True)
    last = mx.sum(kept, axis=-1, keepdims=True) - 1
    return mx.where(temperature > 0, mx.minimum(n_below, last), 0).astype(mx.int32)


def _parameters(ask: Ask) -> NDArray[np.float32]:
    """Return top_k, top_p, min_p, temperature, and the number of each step: ``[4 + n_steps, n_rows]``."""
    picks = [(pick.top_k, pick.top_p, pick.min_p, pick.temperature) for pick in ask.picks]
    return np.concatenate([np.array(picks, np.float32).T, ask.numbers])


def _best(logits: mx.array, n: int) -> tuple[mx.array, mx.array]:
    """Return the ``n`` highest logits of each row in descending order, ties by id, with their ids; NaN comes first."""
    ranked = mx.where(mx.isnan(logits), mx.array(mx.inf), logits)
    ids = mx.argmax(ranked, axis=-1, keepdims=True) if n == 1 else _highest(ranked, n)
    return ids.astype(mx.int32), mx.take_along_axis(logits, ids, axis=-1)


def _highest(x: mx.array, n: int) -> mx.array:
    """Return the ids of the ``n`` highest values of each row in descending order, ties by id.

    They are in the ``n`` groups of consecutive values whose highest values are the highest, so that few are sorted.
    """
    n_rows, n_values = x.shape
    n_groups = -(-n_values // GROUP)
    if n_groups <= n:
        return mx.argsort(-x, axis=-1)[:, :n]
    if n_groups * GROUP > n_values:
        x = mx.pad(x, [(0, 0), (0, n_groups * GROUP - n_values)], constant_values=-mx.inf)
    groups = x.reshape(n_rows, n_groups, GROUP)
    chosen = mx.sort(mx.argsort(-groups.max(axis=-1), axis=-1)[:, :n], axis=-1)
    values = mx.take_along_axis(groups, chosen[..., None], axis=1).reshape(n_rows, -1)
    places = mx.argsort(-values, axis=-1)[:, :n]
    return mx.take_along_axis(chosen, places // GROUP, axis=-1) * GROUP + places % GROUP


def _allowed(restrictions: Sequence[Restriction], n_vocab: int) -> mx.array:
    """Return ``[n_rows, n_vocab]``, true for the tokens that masks allow."""
    n_words = -(-n_vocab // 32)
    masks = [np.full(n_words, 2**32 - 1, np.uint32) if one.mask is None else one.mask for one in restrictions]
    bits = mx.right_shift(mx.array(np.stack(masks))[..., None], mx.arange(32, dtype=mx.uint32)) & 1
    return bits.reshape(len(masks), -1)[:, :n_vocab] != 0


def _raw(logits: mx.array, picked: mx.array, n: int) -> mx.array:
    """Return the parts of ``Raw`` of a step ``[n_rows, 2 * n + 2]``; floating-point numbers by their bits."""
    ids, best = _best(logits, n)
    of_picked = mx.take_along_axis(logits, picked[:, None], axis=-1)
    totals = mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.concatenate([ids, mx.concatenate([best, of_picked, totals], axis=-1).view(mx.int32)], axis=-1)


def _raw_of(packed: NDArray[np.int32]) -> Raw:
    """Return the results of ``_raw`` of all steps."""
    n = (packed.shape[-1] - 2) // 2
    numbers = _as_floats(packed[..., n:])
    return Raw(packed[..., :n], numbers[..., :n], numbers[..., n], numbers[..., n + 1])


def _as_floats(bits: NDArray[np.int32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(bits).view(np.float32)
