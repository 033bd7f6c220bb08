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

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]: ...


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
    if len(ids) < 2 * n_ctx:
        raise RequestError(
            f"the text has {len(ids)} tokens; perplexity needs {2 * n_ctx}, twice the context of {n_ctx}"
        )
    if n_ctx < 4:
        raise RequestError(f"a context of {n_ctx} tokens is too short to score anything")
    count = len(ids) // n_ctx if n_chunks is None else min(n_chunks, len(ids) // n_ctx)
    first = n_ctx // 2
    total, squares, n_tokens = 0.0, 0.0, 0
    for i in range(count):
        chunk = list(ids[i * n_ctx : (i + 1) * n_ctx])
        read = chunk if bos is None else [bos, *chunk[1:]]
        logits = model.logits(read)[first : n_ctx - 1]
        losses = -log_probabilities(logits, np.array(chunk[first + 1 :]))
        total += float(losses.sum())
        squares += float((losses**2).sum())
        n_tokens += len(losses)
        mean = total / n_tokens
        variance = max(squares / n_tokens - mean**2, 0.0)
        value = float(np.exp(mean))
        yield Estimate(value, value * float(np.sqrt(variance / (n_tokens - 1))), n_tokens, i + 1)


def log_probabilities(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of the probability of one token a row: exponentials in float32, their sum in float64."""
    top = logits.max(axis=1)
    sums = np.exp(logits - top[:, None]).sum(axis=1, dtype=np.float64)
    return logits[np.arange(len(ids)), ids].astype(np.float64) - top - np.log(sums)
