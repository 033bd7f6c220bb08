"""Candidates for the next token, and operations on them that never sort the whole vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError

Indices = NDArray[np.intp]


class Candidates:
    """Parallel arrays of token ids and logits. Samplers change them in place.

    Attributes:
        logits: float32 ``[n]``, one for each candidate. A sampler may write into it, or assign a new array of the same
            length; if that may change the order, it sets ``sorted`` to False.
        sorted: True if ``logits`` are in descending order.
        selected: Id of the chosen token; None until a sampler calls ``select``.
        total: log(sum(exp(logit))) of the tokens that the rules of a sampler allow; log-probabilities of the model then
            count among these. None: among the whole vocabulary.
    """

    def __init__(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> None:
        """Create candidates; without ``ids`` candidate i is token i, as with the logits of a whole vocabulary."""
        self.logits = logits
        self.sorted = False
        self.selected: int | None = None
        self.total: float | None = None
        self._ids = ids
        self._n_all = len(logits)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids of the candidates, int32 ``[n]``."""
        if self._ids is None:
            self._ids = np.arange(len(self.logits), dtype=np.int32)
        return self._ids

    @property
    def problem(self) -> str | None:
        """Description of a sampler's mistake; None if there is none."""
        n = self._n_all if self._ids is None else len(self._ids)
        if self.logits.shape != (n,):
            shape = " x ".join(map(str, self.logits.shape))
            return f"assigned {shape} logits to {n} candidates; drop candidates with `keep`"
        return None if n else "left no candidates; it must leave one"

    def positions(self, tokens: NDArray[np.integer[Any]]) -> Indices:
        """Return the index of each token among the candidates; -1 for a token that is no candidate."""
        if self._ids is None:
            return np.where(tokens < len(self.logits), tokens, -1).astype(np.intp)
        order = np.argsort(self._ids)
        nearest = order[np.searchsorted(self._ids, tokens, sorter=order).clip(max=len(order) - 1)]
        return np.where(self._ids[nearest] == tokens, nearest, -1)

    def keep(self, which: NDArray[np.bool_] | Indices) -> None:
        """Drop the other candidates; ``which`` is a boolean mask, or indices in their new order."""
        if which.dtype == np.bool_:
            if len(which) != len(self):
                raise ValueError(f"keep: the mask has {len(which)} values for {len(self)} candidates")
            which = np.flatnonzero(which)
        else:
            self.sorted = False
        self._ids = which.astype(np.int32) if self._ids is None else self._ids[which]
        self.logits = self.logits[which]

    def top(self, k: int) -> Indices:
        """Return the indices of the ``k`` highest logits, highest first; of equal ones the earliest."""
        return np.arange(min(k, len(self))) if self.sorted else largest(self.logits, k)

    def keep_top(self, k: int) -> None:
        """Drop all but the ``k`` highest logits, and sort them."""
        if self.sorted:
            self.logits = self.logits[:k]
            self._ids = self.ids[:k]
        else:
            self.keep(self.top(k))
            self.sorted = True

    def peak(self) -> float:
        """Return the highest logit. Raises RequestError if no candidate has a finite one."""
        peak = float(self.logits[0] if self.sorted else self.logits.max())
        if not math.isfinite(peak):
            raise RequestError(
                f"the sampling parameters leave no token to choose: the highest logit is {peak}; "
                "check logit_bias, the penalties and temperature"
            )
        return peak

    def weights(self) -> NDArray[np.float32]:
        """Return exp(logit - highest logit), probabilities up to a factor, float32 ``[n]``."""
        return np.exp(self.logits - np.float32(self.peak()))

    def probabilities(self) -> NDArray[np.float32]:
        """Return the softmax of the logits, float32 ``[n]``."""
        weights = self.weights()
        return weights / weights.sum()

    def select(self, index: int) -> None:
        """Choose the candidate at ``index``; the chain ends here."""
        self.selected = index if self._ids is None else int(self._ids[index])


def largest(values: NDArray[np.float32], k: int) -> Indices:
    """Return the indices of the ``k`` highest values, highest first; of equal ones the earliest. Empty if k <= 0."""
    if k <= 0:
        return np.empty(0, np.intp)
    if k >= len(values):
        return _descending(values)
    pool = np.flatnonzero(values >= _floor(values, k))
    return pool[_descending(values[pool])[:k]]


def _floor(values: NDArray[np.float32], k: int) -> np.float32:
    """Return a value that at least ``k`` values reach, and few more than ``k`` if their order is random.

    The maxima of disjoint slices are values themselves, so the k-th highest maximum will do; with many
    more slices than ``k``, it is close to the k-th highest value. Finding it reads the values only once.
    """
    slices = max(1024, 8 * k)
    rows = len(values) // slices
    if rows >= 4:
        values = values[: rows * slices].reshape(rows, slices).max(axis=0)
    floor: np.float32 = np.partition(values, len(values) - k)[len(values) - k]
    return floor


def _descending(values: NDArray[np.float32]) -> Indices:
    """Return argsort(-values, kind="stable"), computed as one sort of integers, for which NumPy has vector code.

    The bits of a float32 order as a signed integer once the negative ones are flipped (IEEE 754, section
    5.10); with the index in the low half of an int64, no two keys are equal.
    """
    bits = (np.float32(0) - values).view(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    keys = (bits.astype(np.int64) << 32) | np.arange(len(values))
    keys.sort()
    return (keys & 0xFFFFFFFF).astype(np.intp)
