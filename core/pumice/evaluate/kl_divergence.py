"""Kullback-Leibler divergence of a model's predictions from those of a base model, such as the unquantized one.

The base model's predictions are read from a file in llama-perplexity's format.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.evaluate.perplexity import Estimate, Mean, Scorer, chunks_of, log_probabilities, scored
from pumice.gguf.output import NewFiles, check_space

MAGIC = b"_logits_"
_SIZES = struct.Struct("<3i")  # n_ctx, n_vocab, number of chunks
DEPTH = 16.0  # lower bound of log-probabilities relative to the highest
STEPS = 65535

PERCENTILES = (0, 0.1, 1, 5, 10, 50, 90, 95, 99, 99.9, 100)


@dataclass(frozen=True)
class Divergence:
    """The comparison over all scored tokens.

    Attributes:
        perplexity: perplexity of the model.
        base: perplexity of the base model, whose stored log-probabilities have a lower bound.
        divergence: mean divergence in nats.
        error: standard error of the mean divergence.
        percentiles: percentiles of the tokens' divergence.
        same_top: share of tokens for which both models predict the same most probable token.
        probability_rms: root mean square of the change in the probability of the text's tokens.
    """

    perplexity: Estimate
    base: float
    divergence: float
    error: float
    percentiles: dict[float, float]
    same_top: float
    probability_rms: float

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values."""
        return asdict(self)


def save_predictions(
    path: str | os.PathLike[str],
    model: Scorer,
    ids: Sequence[int],
    n_ctx: int = 512,
    *,
    bos: int | None = None,
    n_chunks: int | None = None,
    force: bool = False,
) -> Iterator[Estimate]:
    """Write a model's predictions for a text; yields the perplexity after each chunk.

    The file takes 2 bytes per scored token and vocabulary entry. Arguments are those of ``perplexity``.
    """
    chunks, losses = chunks_of(ids, n_ctx, n_chunks), Mean()
    with NewFiles([path], force=force) as file:
        file.next()
        for i, chunk in enumerate(chunks):
            logits, tokens = scored(model, chunk, bos)
            if i == 0:
                check_space(Path(path).resolve().parent, len(chunks) * _pack(logits).nbytes)
                head = _SIZES.pack(n_ctx, logits.shape[1], len(chunks))
                file.write(MAGIC + head + np.array(chunks, np.int32).tobytes())
            file.write(_pack(logits).tobytes())
            losses.add(-log_probabilities(logits, tokens))
            yield losses.perplexity(i + 1)


def kl_divergence(model: Scorer, path: str | os.PathLike[str], *, bos: int | None = None) -> Iterator[Divergence]:
    """Compare a model with the predictions in a file; yields the result after each chunk.

    Raises RequestError if the file is invalid, incomplete, or from a model with another vocabulary.
    """
    chunks, records = _open(Path(path))
    losses, base_losses = Mean(), Mean()
    divergences: list[NDArray[np.float64]] = []
    changes: list[NDArray[np.float64]] = []
    n_same = 0
    for i, chunk in enumerate(chunks):
        logits, tokens = scored(model, chunk, bos)
        base = _unpack(records[i])[:, : logits.shape[1]]
        if records.shape[2] != _record_words(logits.shape[1]):
            raise RequestError(
                f"{path}: the predictions need another vocabulary than this model's {logits.shape[1]} tokens"
            )
        predicted = log_softmax(logits)
        rows = np.arange(len(tokens))
        losses.add(-log_probabilities(logits, tokens))
        base_losses.add(-base[rows, tokens].astype(np.float64))
        terms = np.where(base > -DEPTH, np.exp(base) * (base - predicted), 0)
        divergences.append(terms.sum(axis=1, dtype=np.float64))
        changes.append((np.exp(predicted[rows, tokens]) - np.exp(base[rows, tokens])).astype(np.float64))
        n_same += int((base.argmax(axis=1) == logits.argmax(axis=1)).sum())
        yield _result(
            losses.perplexity(i + 1), base_losses, np.concatenate(divergences), np.concatenate(changes), n_same
        )


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the log-probabilities [n, n_vocab] of logits [n, n_vocab]."""
    top = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - top).sum(axis=1, keepdims=True, dtype=np.float64)
    return logits - top - np.log(sums).astype(np.float32)


def context_of(path: str | os.PathLike[str]) -> int:
    """Return the number of tokens per chunk in a file of predictions."""
    return len(_open(Path(path))[0][0])


def _result(
    perplexity: Estimate, base: Mean, divergences: NDArray[np.float64], changes: NDArray[np.float64], n_same: int
) -> Divergence:
    mean = Mean()
    mean.add(divergences)
    values = np.percentile(divergences, PERCENTILES)
    return Divergence(
        perplexity,
        float(np.exp(base.value)),
        mean.value,
        mean.error,
        dict(zip(PERCENTILES, map(float, values), strict=True)),
        n_same / mean.n,
        float(np.sqrt((changes**2).mean())),
    )


def _record_words(n_vocab: int) -> int:
    """Return the 16-bit words per predicted token: scale, lowest log-probability, and codes of all tokens."""
    return 2 * ((n_vocab + 1) // 2) + 4


def _pack(logits: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Encode log-probabilities as steps from the lowest stored one."""
    predicted = log_softmax(logits)
    top = logits.max(axis=1, keepdims=True)
    low = np.maximum(logits.min(axis=1, keepdims=True), top - np.float32(DEPTH))
    scale = (top - low) / np.float32(STEPS)
    codes = np.rint(np.maximum(logits - low, 0) / np.where(scale > 0, scale, 1))
    out = np.zeros((len(logits), _record_words(logits.shape[1])), np.uint16)
    lowest = low - logits[:, :1] + predicted[:, :1]  # low as a log-probability
    out[:, :4] = np.concatenate([scale, lowest], axis=1).astype(np.float32).view(np.uint16)
    out[:, 4 : 4 + logits.shape[1]] = codes
    return out


def _unpack(records: NDArray[np.uint16]) -> NDArray[np.float32]:
    numbers = np.ascontiguousarray(records[:, :4]).view(np.float32)
    return numbers[:, :1] * records[:, 4:].astype(np.float32) + numbers[:, 1:]


def _open(path: Path) -> tuple[list[list[int]], NDArray[np.uint16]]:
    """Return the chunks of tokens, and mapped records [chunk, token, word]."""
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC) + _SIZES.size)
            size = path.stat().st_size
    except OSError as error:
        raise RequestError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if head[: len(MAGIC)] != MAGIC or len(head) < len(MAGIC) + _SIZES.size:
        raise RequestError(f"{path}: not a file of predictions")
    n_ctx, n_vocab, n_chunks = _SIZES.unpack(head[len(MAGIC) :])
    shape = (n_chunks, n_ctx - 1 - n_ctx // 2, _record_words(n_vocab))
    tokens_bytes = 4 * n_chunks * n_ctx
    if min(n_ctx, n_vocab, n_chunks) < 1 or size != len(head) + tokens_bytes + 2 * int(np.prod(shape, dtype=object)):
        raise RequestError(f"{path}: incomplete: {size} bytes for {n_chunks} chunks of {n_ctx} tokens")
    tokens = np.memmap(path, np.int32, "r", len(head), (n_chunks, n_ctx))
    return tokens.tolist(), np.memmap(path, np.uint16, "r", len(head) + tokens_bytes, shape)
