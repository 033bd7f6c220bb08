"""Transcripts as text, subtitles (SubRip, WebVTT) and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pumice.errors import RequestError
from pumice.media.subtitles import Cue, subrip, webvtt
from pumice.wording import did_you_mean, show_python

if TYPE_CHECKING:
    from pumice.transcription.transcript import Transcript

FORMATS = ("txt", "srt", "vtt", "json")


def check_format(format: str) -> None:
    """Raise RequestError for an unknown format."""
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS) if isinstance(format, str) else ""
        raise RequestError(f"format must be one of {', '.join(FORMATS)}, not {show_python(format)}{hint}")


def write(transcript: Transcript, format: str) -> str:
    """Return a transcript in one of ``FORMATS``. Raises RequestError for another format, and what decoding raises."""
    check_format(format)
    if format in ("srt", "vtt"):
        cues: list[Cue] = [cue for segment in transcript for cue in (segment.words or (segment,))]
        return subrip(cues) if format == "srt" else webvtt(cues)
    if format == "txt":
        return "".join(f"{segment.text.strip()}\n" for segment in transcript)
    segments = [asdict(segment) for segment in transcript]
    for segment in segments:
        if segment["words"] is None:
            del segment["words"]
    values = {
        "language": transcript.language,
        "language_probability": transcript.language_probability,
        "duration": transcript.duration,
        "text": transcript.text,
        "segments": segments,
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"
