"""Compute single sequences outside of the schedule, one step per turn of a generator, between other steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.engine import logprobs
from pumice.engine.arguments import NO_PREDICTION
from pumice.engine.batches import EncoderMemory, Part, Place, batch_of
from pumice.engine.engine import Engine
from pumice.engine.generation import EncoderPrompt, salt_of
from pumice.engine.messages import Logprobs, SavePrompt, Score
from pumice.errors import RequestError

T = TypeVar("T")

Forward = Callable[[Sequence[int], int, Sequence[int]], NDArray[np.float32]]
"""A step of a sequence: takes new tokens, the number of earlier ones, and rows; returns logits ``[n, n_vocab]``."""


def logits(
    engine: Engine, tokens: Sequence[int], adapter_scales: Sequence[float] = (), prompt: EncoderPrompt | None = None
) -> Generator[None, None, NDArray[np.float32]]:
    """Return logits ``[len(tokens), n_vocab]`` of a new sequence; an encoder reads ``prompt`` before."""
    limits = engine.limits
    longest = max(len(tokens), len(prompt.tokens) if prompt else 0)
    if longest > limits.n_ctx:
        raise RequestError(f"{longest} tokens exceed the context of {limits.n_ctx}; increase n_ctx")
    with sequence(engine, adapter_scales, prompt) as (_, forward):
        return np.concatenate((yield from _rows(engine, forward, tokens)))


def score(engine: Engine, text: Score) -> Generator[None, None, list[Logprobs]]:
    """Return the log-probabilities of a text's tokens after the first. The text stays in the cache like a prompt."""
    if engine.runner.encodes:
        raise RequestError(NO_PREDICTION)
    tokens, targets = text.tokens, iter(text.tokens[1:])

    def take(rows: NDArray[np.float32]) -> list[Logprobs]:
        totals = logprobs.totals(rows, [True] * len(rows))
        return [logprobs.raw(row, total, next(targets), text.n_top) for row, total in zip(rows, totals, strict=True)]

    with sequence(engine, text.adapter_scales) as (place, forward):
        steps = yield from _rows(engine, forward, tokens[:-1], take=take)
        place.tables.salt = salt_of(text.cache_salt, text.adapter_scales)
        engine.cache.publish(place.tables, tokens, len(tokens) - 1)
    return [item for step in steps for item in step]


def save(engine: Engine, prompt: SavePrompt) -> Generator[None, None, int]:
    """Write the cache of a prompt to disk; return the number of its first tokens that are there."""
    turns = engine.cache.save(prompt.tokens, salt_of(prompt.cache_salt, prompt.adapter_scales))
    while True:
        engine.settle()
        try:
            with engine.failing_lost():
                next(turns)
        except StopIteration as end:
            return int(end.value)
        yield


def continuations(
    engine: Engine, beginning: Sequence[int], endings: Sequence[Sequence[int]], adapter_scales: Sequence[float] = ()
) -> Generator[None, None, list[NDArray[np.float32]]]:
    """Return the logits ``[len(ending), n_vocab]`` that predict each non-empty ending of a new sequence.

    The beginning is read once if its state remains unchanged while an ending is read.
    """
    n_tokens = len(beginning) + max(map(len, endings), default=0)
    if n_tokens > engine.limits.n_ctx:
        raise RequestError(f"{n_tokens} tokens exceed the context of {engine.limits.n_ctx}; increase n_ctx")
    runner, n_past = engine.runner, len(beginning) - 1
    stays = not (runner.recurrent or runner.needs_whole_sequences or any(engine.limits.n_blocks))
    results: list[NDArray[np.float32]] = []
    while len(results) < len(endings):
        with sequence(engine, adapter_scales) as (_, forward):
            for ending in endings[len(results) :] if stays else [endings[len(results)]]:
                tokens = [*beginning, *ending[:-1]]
                n_known = n_past if results and stays else 0
                results.append(np.concatenate((yield from _rows(engine, forward, tokens, n_known, n_past))))
    return results


def _rows(
    engine: Engine,
    forward: Forward,
    tokens: Sequence[int],
    n_past: int = 0,
    first: int = 0,
    take: Callable[[NDArray[np.float32]], T] = np.copy,  # type: ignore[assignment]
) -> Generator[None, None, list[T]]:
    """Yield between steps, and return ``take`` of the logits of ``tokens[first:]``, in as few steps as possible.

    ``n_past`` tokens were read before.
    """
    n_batch, n_outputs = engine.limits.n_batch, engine.limits.n_outputs
    rows: list[T] = []
    while n_past < len(tokens):
        end = min(n_past + n_batch, len(tokens), max(first, n_past) + n_outputs)
        if engine.runner.needs_whole_sequences:  # each step repeats the whole sequence for some of its logits
            rows.append(take(forward(tokens, 0, range(max(first, n_past), end))))
        else:
            rows.append(take(forward(tokens[n_past:end], n_past, range(max(first - n_past, 0), end - n_past))))
        n_past = end
        yield
    return rows


def measure(
    engine: Engine, tokens: Sequence[int], depth: int, progress: Callable[[int, int], None] | None = None
) -> Generator[None, None, float]:
    """Return the seconds to read a sequence's tokens after the first ``depth``; ``progress`` gets read and total."""
    n_batch = engine.limits.n_batch
    firsts = [*range(0, depth, n_batch), *range(depth, len(tokens), n_batch), len(tokens)]
    seconds = 0.0
    with sequence(engine) as (_, forward):
        for first, end in pairwise(firsts):
            started = time.perf_counter()
            is_last = end in (depth, len(tokens))  # last step of the prefix or of the measured part
            forward(tokens[first:end], first, [end - first - 1] if is_last else [])
            seconds += time.perf_counter() - started if first >= depth else 0.0
            if progress:
                progress(end, len(tokens))
            yield
    return seconds


@contextmanager
def sequence(
    engine: Engine, adapter_scales: Sequence[float] = (), prompt: EncoderPrompt | None = None
) -> Iterator[tuple[Place, Forward]]:
    """Yield a place for a sequence, and a function for its steps; only one at a time is sure to get its blocks.

    ``prompt``: input of the encoder.
    """
    engine.settle()
    place = engine.scheduler.take_place(must=True)
    assert place is not None
    try:
        if prompt:
            place.memory = EncoderMemory(engine.cache.begin([])[0], len(prompt.tokens))
            engine.scheduler.hold(Place(place.slot, place.memory.tables), 0, len(prompt.tokens), must=True)
            with engine.failing_lost():
                engine.read(place, prompt)
        yield place, partial(_forward, engine, place, adapter_scales)
    finally:
        engine.scheduler.give_back(place)


def _forward(
    engine: Engine, place: Place, scales: Sequence[float], tokens: Sequence[int], n_past: int, wanted: Sequence[int]
) -> NDArray[np.float32]:
    """Compute one step of a single sequence; others are preempted if it needs their blocks."""
    engine.settle()
    engine.scheduler.hold(place, n_past, len(tokens), must=True)
    with engine.failing_lost():
        return engine.runner.run(batch_of(engine.cache, [Part(place, tokens, n_past, wanted, scales)]))
