"""Segments of a transcription: the pieces of a sound that a model hears one by one, and subtitles of them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
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


def subrip(segments: Iterable[Segment]) -> str:
    """Return subtitles in the form SubRip (.srt)."""
    spoken = [segment for segment in segments if segment.text.strip()]
    cues = (f"{i}\n{_times(segment, ',')}\n{_line(segment.text)}\n" for i, segment in enumerate(spoken, 1))
    return "\n".join(cues)


def webvtt(segments: Iterable[Segment]) -> str:
    """Return subtitles in the form WebVTT (.vtt)."""
    spoken = [segment for segment in segments if segment.text.strip()]
    cues = (f"{_times(segment, '.')}\n{html.escape(_line(segment.text), quote=False)}\n" for segment in spoken)
    return "\n".join(["WEBVTT\n", *cues])


def _times(segment: Segment, point: str) -> str:
    return f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"


def _clock(seconds: float, point: str) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, rest = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{rest:03}"


def _line(text: str) -> str:
    """Return a text in one line, since an empty line would end its cue."""
    return " ".join(text.split()).replace("-->", "->")
