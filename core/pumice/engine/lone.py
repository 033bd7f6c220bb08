"""Work on one sequence outside the schedule, a step at each turn of a generator: others have their steps between."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pumice.engine.engine import Engine
from pumice.errors import RequestError


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
    with engine.lone(adapter_scales, prompt) as forward:
        for first in range(0, len(tokens), chunk):
            part = tokens[first : first + chunk]
            if engine.needs_whole_sequences:  # all of it again, for some of its logits
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
    with engine.lone() as forward:
        for first, end in pairwise(firsts):
            started = time.perf_counter()
            is_last = end in (depth, len(tokens))  # of what is measured, or of what is before
            forward(tokens[first:end], first, [end - first - 1] if is_last else [])
            seconds += time.perf_counter() - started if first >= depth else 0.0
            yield
    return seconds
