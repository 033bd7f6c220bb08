"""Transcripts as text, subtitles (SubRip, WebVTT) and JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from pumice.errors import RequestError
from pumice.wording import did_you_mean, show_python

if TYPE_CHECKING:
    from pumice.transcription.transcript import Transcript

FORMATS = ("txt", "srt", "vtt", "json")


class Cue(Protocol):
    """A text between two times in seconds."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


def check_format(format: str) -> None:
    """Raise RequestError for an unknown format."""
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS) if isinstance(format, str) else ""
        raise RequestError(f"format must be one of {', '.join(FORMATS)}, not {show_python(format)}{hint}")


def write(transcript: Transcript, format: str) -> str:
    """Return a transcript in one of ``FORMATS``. Raises RequestError for another format, and what decoding raises."""
    check_format(format)
    if format == "srt":
        return subrip(transcript)
    if format == "vtt":
        return webvtt(transcript)
    if format == "txt":
        return "".join(f"{segment.text.strip()}\n" for segment in transcript)
    segments = [asdict(segment) for segment in transcript]
    values = {
        "language": transcript.language,
        "language_probability": transcript.language_probability,
        "duration": transcript.duration,
        "text": transcript.text,
        "segments": segments,
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


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
