"""Perplexity of a model on a text, computed as llama-perplexity does.

The text is split into chunks of ``n_ctx`` tokens, which are read independently. The second half of each chunk is
scored, so that every scored token has at least ``n_ctx / 2`` tokens before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.wording import counted_as


class Scorer(Protocol):
    """The part of an engine that evaluation uses: a ``LocalEngine`` has it."""

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]]
    ) -> Sequence[NDArray[np.float32]]: ...


@dataclass(frozen=True)
class Estimate:
    """The perplexity after some chunks, its standard error, and the number of scored tokens."""

    perplexity: float
    error: float
    n_tokens: int
    n_chunks: int


def perplexity(
    model: Scorer, ids: Sequence[int], n_ctx: int = 512, *, bos: int | None = None, n_chunks: int | None = None
) -> Iterator[Estimate]:
    """Yield the estimate after each chunk of ``ids``; the last one is the result.

    Args:
        model: the model.
        ids: tokens of the text.
        n_ctx: tokens per chunk.
        bos: token that replaces each chunk's first one; None: no replacement.
        n_chunks: maximum number of chunks; None: all.

    Raises:
        RequestError: too few tokens for two chunks.
    """
    losses = Mean()
    for i, chunk in enumerate(chunks_of(ids, n_ctx, n_chunks)):
        losses.add(-log_probabilities(*scored(model, chunk, bos)))
        yield losses.perplexity(i + 1)


def chunks_of(ids: Sequence[int], n_ctx: int, most: int | None = None) -> list[list[int]]:
    """Return the chunks to score, at most ``most``. Raises RequestError if there are too few tokens for two."""
    if n_ctx < 4:
        raise RequestError(f"a context of {n_ctx} tokens is too short to score anything")
    if len(ids) < 2 * n_ctx:
        raise RequestError(
            f"the text has {counted_as(len(ids), 'token')}; two chunks of n_ctx {n_ctx} need {2 * n_ctx}: "
            "give a longer text or a smaller n_ctx"
        )
    count = len(ids) // n_ctx
    return [list(ids[i * n_ctx : (i + 1) * n_ctx]) for i in range(count if most is None else min(most, count))]


def scored(model: Scorer, chunk: Sequence[int], bos: int | None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return logits [n, n_vocab] of a chunk's second half, and the n following tokens."""
    first = len(chunk) // 2 + 1
    beginning = chunk[:first] if bos is None else [bos, *chunk[1:first]]
    [logits] = model.continuation_logits(beginning, [chunk[first:]])
    return logits, np.array(chunk[first:])


class Mean:
    """The running mean of numbers, and its standard error."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        self.n += len(values)
        self._sum += float(values.sum())
        self._squares += float((values**2).sum())

    @property
    def value(self) -> float:
        return self._sum / self.n

    @property
    def error(self) -> float:
        return float(np.sqrt(max(self._squares / self.n - self.value**2, 0.0) / (self.n - 1)))

    def perplexity(self, n_chunks: int) -> Estimate:
        """Return the estimate from the added losses."""
        value = float(np.exp(self.value))
        return Estimate(value, value * self.error, self.n, n_chunks)


def log_probabilities(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log-probability of one token per row: exponentials in float32, their sum in float64."""
    top = logits.max(axis=1)
    sums = np.exp(logits - top[:, None]).sum(axis=1, dtype=np.float64)
    return logits[np.arange(len(ids)), ids].astype(np.float64) - top - np.log(sums)
