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
    chunk = min(limits.n_batch, limits.n_outputs)
    rows = []
    with sequence(engine, adapter_scales, prompt) as forward:
        for first in range(0, len(tokens), chunk):
            part = tokens[first : first + chunk]
            if engine.runner.needs_whole_sequences:  # all of it again, for some of its logits
                rows.append(forward(tokens, 0, range(first, first + len(part))).copy())
            else:
                rows.append(forward(part, first, range(len(part))).copy())
            yield
    return np.concatenate(rows) if rows else np.empty((0, 0), np.float32)


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
