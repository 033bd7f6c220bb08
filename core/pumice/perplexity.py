"""Perplexity: how little a text surprises a model, counted as llama-perplexity does.

The text is cut into chunks of ``n_ctx`` tokens, each read alone. Of each chunk the second half is scored, so that every
token that counts has at least ``n_ctx / 2`` before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError


class Scorer(Protocol):
    """What is asked of a model."""

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]]
    ) -> Sequence[NDArray[np.float32]]: ...


@dataclass(frozen=True)
class Estimate:
    """After some chunks: the perplexity, its standard error, and of how many tokens it is."""

    perplexity: float
    error: float
    n_tokens: int
    n_chunks: int


def perplexity(
    model: Scorer, ids: Sequence[int], n_ctx: int = 512, *, bos: int | None = None, n_chunks: int | None = None
) -> Iterator[Estimate]:
    """The estimate after each chunk of ``ids``; the last one is the result.

    bos: takes the place of each chunk's first token; None: nothing does. n_chunks: most chunks to read.
    RequestError if there are not tokens for two chunks.
    """
    losses = Mean()
    for i, chunk in enumerate(chunks_of(ids, n_ctx, n_chunks)):
        losses.add(-log_probabilities(*scored(model, chunk, bos)))
        yield losses.perplexity(i + 1)


def chunks_of(ids: Sequence[int], n_ctx: int, most: int | None = None) -> list[list[int]]:
    """The chunks that are scored, at most so many. RequestError if there are not tokens for two."""
    if n_ctx < 4:
        raise RequestError(f"a context of {n_ctx} tokens is too short to score anything")
    if len(ids) < 2 * n_ctx:
        raise RequestError(
            f"the text has {len(ids)} tokens; perplexity needs {2 * n_ctx}, twice the context of {n_ctx}"
        )
    count = len(ids) // n_ctx
    return [list(ids[i * n_ctx : (i + 1) * n_ctx]) for i in range(count if most is None else min(most, count))]


def scored(model: Scorer, chunk: Sequence[int], bos: int | None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits [n, n_vocab] of a chunk's second half, and the n tokens that came next."""
    first = len(chunk) // 2 + 1
    beginning = chunk[:first] if bos is None else [bos, *chunk[1:first]]
    [logits] = model.continuation_logits(beginning, [chunk[first:]])
    return logits, np.array(chunk[first:])


class Mean:
    """The mean of numbers that come in pieces, and its standard error."""

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
        """Of the losses that were added."""
        value = float(np.exp(self.value))
        return Estimate(value, value * self.error, self.n, n_chunks)


def log_probabilities(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of the probability of one token a row: exponentials in float32, their sum in float64."""
    top = logits.max(axis=1)
    sums = np.exp(logits - top[:, None]).sum(axis=1, dtype=np.float64)
    return logits[np.arange(len(ids)), ids].astype(np.float64) - top - np.log(sums)
