"""Voices: a recorded speaker as words and audio codes, in the JSON files of the package outetts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pumice.errors import RequestError

MAX_BYTES = 1 << 20  # of a file
MOST_CODES = 4096  # of a voice: 55 seconds
_Code = Annotated[int, Meta(ge=0, le=4095)]


class SpokenWord(msgspec.Struct, frozen=True):
    """A word, its duration in seconds, and its audio codes."""

    word: Annotated[str, Meta(min_length=1, max_length=100)]
    duration: Annotated[float, Meta(ge=0, le=60)]
    codes: Annotated[list[_Code], Meta(min_length=1, max_length=MOST_CODES)]


class Voice(msgspec.Struct, frozen=True):
    """A voice: what a speaker said, and each of its words with audio codes."""

    text: Annotated[str, Meta(min_length=1, max_length=4096)]
    words: Annotated[list[SpokenWord], Meta(min_length=1, max_length=1000)]

    @classmethod
    def read(cls, path: str | Path) -> Voice:
        """Read a voice's file. Raises RequestError for one that cannot be read, or is no voice."""
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise RequestError(f"voice: {path}: {error.strerror}") from None
        if len(data) > MAX_BYTES:
            raise RequestError(f"voice: {path}: more than {MAX_BYTES} bytes")
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, name: str) -> Voice:
        """Return the voice of a file's bytes. Raises RequestError, which names the file."""
        try:
            voice = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(f"voice: {name}: not a voice of OuteTTS: {error}") from None
        if sum(len(word.codes) for word in voice.words) > MOST_CODES:
            raise RequestError(f"voice: {name}: more than {MOST_CODES} audio codes")
        return voice
