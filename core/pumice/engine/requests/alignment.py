"""Which part of a sound each token of a decoder attends to, by the heads that follow it, as openai-whisper does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np

from pumice.engine.requests.reading import Kind, Reading, Rows

WIDTH: Final = 7  # rows whose median replaces the middle one
_COMPARED: Final = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5)),
    *((2, 6), (2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)
"""Pairs of seven values which are put in order one after the other; the fourth one is then their median."""


@dataclass(eq=False)
class Alignment(Reading[Rows]):
    """Attention ``[len(tokens), n_rows]`` of tokens to rows of a sound, as deviations from each row's mean."""

    n_rows: int = 0
    rows: list[Rows] = field(default_factory=list)
    keys: list[Rows] = field(default_factory=list)
    kind: ClassVar[Kind] = "align"

    def take_keys(self, start: int, keys: Rows) -> None:
        """Take the keys ``[n, n_heads, k_dim]`` of rows from ``start`` on."""
        self.keys = [*(self.keys if start else ()), keys.copy()]

    def take(self, rows: Rows) -> None:
        self.rows.append(rows.copy())

    def value(self) -> Rows:
        return attention(np.concatenate(self.rows), np.concatenate(self.keys)[: self.n_rows])


def attention(queries: Rows, keys: Rows) -> Rows:
    """Return the mean attention of heads ``[n, m]``, for queries ``[n, n_heads, k]`` and keys ``[m, n_heads, k]``.

    A head's attention is given in deviations from its mean over the tokens, and smoothed by a median over rows.
    """
    scores = np.matmul(queries.swapaxes(0, 1), keys.transpose(1, 2, 0)) * np.float32(queries.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    weights -= weights.mean(axis=1, keepdims=True)
    weights /= np.maximum(weights.std(axis=1, keepdims=True), 1e-9)
    mean: Rows = median(weights).mean(axis=0)
    return mean


def median(values: Rows) -> Rows:
    """Return the median of the ``WIDTH`` values around each one of the last axis, which is mirrored at its ends."""
    n = values.shape[-1]
    if n <= WIDTH // 2:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(WIDTH // 2, WIDTH // 2)], "reflect")
    around = [padded[..., i : i + n] for i in range(WIDTH)]
    for i, j in _COMPARED:
        around[i], around[j] = np.minimum(around[i], around[j]), np.maximum(around[i], around[j])
    return around[WIDTH // 2]
