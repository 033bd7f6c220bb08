"""Subtitles: texts with times, as SubRip and WebVTT."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Protocol


class Cue(Protocol):
    """A text between two times in seconds."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


def subrip(cues: Iterable[Cue]) -> str:
    """Return subtitles in the form SubRip (.srt)."""
    spoken = [cue for cue in cues if cue.text.strip()]
    return "\n".join(f"{i}\n{_times(cue, ',')}\n{_line(cue.text)}\n" for i, cue in enumerate(spoken, 1))


def webvtt(cues: Iterable[Cue]) -> str:
    """Return subtitles in the form WebVTT (.vtt)."""
    spoken = [cue for cue in cues if cue.text.strip()]
    texts = (f"{_times(cue, '.')}\n{html.escape(_line(cue.text), quote=False)}\n" for cue in spoken)
    return "\n".join(["WEBVTT\n", *texts])


def _times(cue: Cue, point: str) -> str:
    return f"{_clock(cue.start, point)} --> {_clock(cue.end, point)}"


def _clock(seconds: float, point: str) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, rest = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{rest:03}"


def _line(text: str) -> str:
    """Return a text in one line, since an empty line would end its cue."""
    return " ".join(text.split()).replace("-->", "->")
