"""Work on one sequence outside the schedule, a step at each turn of a generator: others have their steps between."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pumice.engine.batches import Part, Place, Read, batch_of
from pumice.engine.engine import Engine
from pumice.errors import RequestError

Forward = Callable[[Sequence[int], int, Sequence[int]], NDArray[np.float32]]
"""A step of one sequence: its new tokens, how many came before, which of them give logits; those ``[n, n_vocab]``."""


def logits(
    engine: Engine, tokens: Sequence[int], adapter_scales: Sequence[float] = (), prompt: Sequence[int] = ()
) -> Generator[None, None, NDArray[np.float32]]:
    """Logits ``[len(tokens), n_vocab]`` of a fresh sequence; ``prompt``: what an encoder reads before."""
    limits = engine.limits
    if max(len(tokens), len(prompt)) > limits.n_ctx:
        raise RequestError(
            f"{max(len(tokens), len(prompt))} tokens do not fit the context of {limits.n_ctx}: raise n_ctx"
        )
    with sequence(engine, adapter_scales, prompt) as forward:
        return (yield from _rows(engine, forward, tokens))


def continuations(
    engine: Engine, beginning: Sequence[int], endings: Sequence[Sequence[int]], adapter_scales: Sequence[float] = ()
) -> Generator[None, None, list[NDArray[np.float32]]]:
    """The logits ``[len(ending), n_vocab]`` that predict each ending of a fresh sequence; none may be empty.

    The beginning is read once, where all that is kept of it stays as it is while an ending is read.
    """
    n_tokens = len(beginning) + max(map(len, endings), default=0)
    if n_tokens > engine.limits.n_ctx:
        raise RequestError(f"{n_tokens} tokens do not fit the context of {engine.limits.n_ctx}: raise n_ctx")
    runner, n_past = engine.runner, len(beginning) - 1
    stays = not (runner.recurrent or runner.needs_whole_sequences or any(engine.limits.n_blocks))
    found: list[NDArray[np.float32]] = []
    while len(found) < len(endings):
        with sequence(engine, adapter_scales) as forward:
            for ending in endings[len(found) :] if stays else [endings[len(found)]]:
                tokens = [*beginning, *ending[:-1]]
                n_known = n_past if found and stays else 0
                found.append((yield from _rows(engine, forward, tokens, n_known, n_past)))
    return found


def _rows(
    engine: Engine, forward: Forward, tokens: Sequence[int], n_past: int = 0, first: int = 0
) -> Generator[None, None, NDArray[np.float32]]:
    """The logits of ``tokens[first:]``, of which ``n_past`` have been read, in as few steps as there is room for."""
    n_batch, n_outputs = engine.limits.n_batch, engine.limits.n_outputs
    rows = []
    while n_past < len(tokens):
        end = min(n_past + n_batch, len(tokens), max(first, n_past) + n_outputs)
        if engine.runner.needs_whole_sequences:  # all of it again, for some of its logits
            rows.append(forward(tokens, 0, range(max(first, n_past), end)).copy())
        else:
            rows.append(forward(tokens[n_past:end], n_past, range(max(first - n_past, 0), end - n_past)).copy())
        n_past = end
        yield
    return np.concatenate(rows)


def measure(engine: Engine, tokens: Sequence[int], depth: int) -> Generator[None, None, float]:
    """Seconds to read a fresh sequence's tokens after the first ``depth``."""
    n_batch = engine.limits.n_batch
    firsts = [*range(0, depth, n_batch), *range(depth, len(tokens), n_batch), len(tokens)]
    seconds = 0.0
    with sequence(engine) as forward:
        for first, end in pairwise(firsts):
            started = time.perf_counter()
            is_last = end in (depth, len(tokens))  # of what is measured, or of what is before
            forward(tokens[first:end], first, [end - first - 1] if is_last else [])
            seconds += time.perf_counter() - started if first >= depth else 0.0
            yield
    return seconds


@contextmanager
def sequence(engine: Engine, adapter_scales: Sequence[float] = (), prompt: Sequence[int] = ()) -> Iterator[Forward]:
    """A place for a sequence; only one at a time is sure to get its blocks. ``prompt``: what an encoder reads."""
    engine.settle()
    place = engine.scheduler.take_place(must=True)
    assert place is not None
    try:
        if prompt:
            place.memory = Read(engine.cache.begin([])[0], len(prompt))
            engine.scheduler.hold(Place(place.slot, place.memory.tables), 0, len(prompt), must=True)
            with engine.failing_lost():
                engine.read(place, prompt)
        yield partial(_forward, engine, place, adapter_scales)
    finally:
        engine.scheduler.give_back(place)


def _forward(
    engine: Engine, place: Place, scales: Sequence[float], tokens: Sequence[int], n_past: int, wanted: Sequence[int]
) -> NDArray[np.float32]:
    """One step of a lone sequence; others wait where it needs their blocks."""
    engine.settle()
    engine.scheduler.hold(place, n_past, len(tokens), must=True)
    with engine.failing_lost():
        return engine.runner.run(batch_of(engine.cache, [Part(place, tokens, n_past, wanted, scales)]))
