"""Token selection on the device by ``Pick``, so that several steps run without the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from pumice.plugin import Ahead, Ask

MAX_BEST = 64
MAX_STEPS = 16


class Picker:
    """The parameters of several steps' selections as arrays ``[n_seqs, 1]``, and the collected results."""

    def __init__(self, ask: Ask) -> None:
        self._n_best = ask.n_best
        self._results: list[tuple[mx.array, mx.array, mx.array]] = []
        if ask.n_best == 1:
            return  # the highest, without parameters, each of which is a copy to the device
        self._numbers = mx.array(ask.numbers)[..., None]
        self._top_k = _column([pick.top_k for pick in ask.picks], mx.int32)
        self._top_p = _column([pick.top_p for pick in ask.picks], mx.float32)
        self._min_p = _column([pick.min_p for pick in ask.picks], mx.float32)
        self._temperature = _column([pick.temperature for pick in ask.picks], mx.float32)

    def pick(self, logits: mx.array) -> mx.array:
        """Pick the tokens ``[n_seqs]`` of the next step from logits ``[n_seqs, n_vocab]``."""
        ids, best = _best(logits, self._n_best)
        if self._n_best == 1:
            picked = ids[:, 0]
        else:
            index = self._index(best, self._numbers[len(self._results)])
            picked = mx.take_along_axis(ids, index, axis=-1)[:, 0]
        self._results.append((ids, best, picked))
        return picked

    @property
    def latest(self) -> tuple[mx.array, mx.array, mx.array]:
        """The lazy results of the latest step."""
        return self._results[-1]

    def results(self) -> Iterator[Ahead]:
        """Yield the results of each step, when it is computed."""
        for arrays in self._results:
            ids, best, picked = (np.array(array)[None] for array in arrays)
            yield Ahead(ids, best, picked)

    def _index(self, best: mx.array, number: mx.array) -> mx.array:
        """Index of the picked logit among the sorted highest ``[n_seqs, n_best]``, as int32 ``[n_seqs, 1]``."""
        low, places = mx.array(-mx.inf), mx.arange(best.shape[-1])
        best = mx.where(places < self._top_k, best, low)
        p = mx.softmax(best, axis=-1)
        kept = (mx.cumsum(p, axis=-1) - p < self._top_p) & (p >= self._min_p * p[:, :1])
        warm = mx.maximum(self._temperature, 1e-10)
        q = mx.softmax(mx.where(kept, (best - best[:, :1]) / warm, low), axis=-1)
        n_below = mx.sum(mx.cumsum(q, axis=-1) <= number, axis=-1, keepdims=True)
        last = mx.sum(kept, axis=-1, keepdims=True) - 1
        return mx.where(self._temperature > 0, mx.minimum(n_below, last), 0).astype(mx.int32)


def _column(values: list[Any], type: mx.Dtype) -> mx.array:
    return mx.array(values, type)[:, None]


def _best(logits: mx.array, n: int) -> tuple[mx.array, mx.array]:
    """Return the ``n`` highest logits of each row in descending order, with their ids; NaN comes first."""
    ranked = mx.where(mx.isnan(logits), mx.array(mx.inf), logits)
    ids = mx.argmax(ranked, axis=-1, keepdims=True) if n == 1 else mx.argsort(-ranked, axis=-1)[:, :n]
    return ids.astype(mx.int32), mx.take_along_axis(logits, ids, axis=-1)
