"""Segments of a transcription: the pieces of a sound that a model hears one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import pumice

RATE = pumice.Audio.RATE
LONGEST = 30 * RATE  # samples of a piece
_SEARCHED = 5 * RATE  # samples at its end among which the quietest place is where it is cut
_FRAME = RATE // 50  # samples whose loudness is measured together


@dataclass(frozen=True)
class Segment:
    """A piece of a sound, from second ``start`` to ``end``, and what is said in it."""

    start: float
    end: float
    text: str


def pieces(samples: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Yield first sample and end of each piece, cut at the quietest place of its last seconds."""
    start = 0
    while len(samples) - start > LONGEST:
        end = start + LONGEST
        frames = samples[end - _SEARCHED : end].reshape(-1, _FRAME)
        quietest = int(np.argmin(np.einsum("ij,ij->i", frames, frames)))
        cut = end - _SEARCHED + quietest * _FRAME + _FRAME // 2
        yield start, cut
        start = cut
    yield start, len(samples)
