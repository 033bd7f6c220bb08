"""Files of sound: WAV and raw samples by this module; FLAC, MP3 and Opus by libsndfile."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pumice.errors import MissingPackageError, RequestError
from pumice.wording import alternatives

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SoundFormat = Literal["wav", "flac", "mp3", "opus", "pcm"]
FORMATS: Final = get_args(SoundFormat)
SOUND_TYPES: Final[Mapping[str, str]] = {
    "wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "opus": "audio/ogg", "pcm": "audio/pcm"
}  # fmt: skip
_KINDS: Mapping[str, tuple[str, str]] = {
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
}
_UNKNOWN = 0xFFFF_FFFF  # length in the header of a WAV that is streamed


@dataclass
class _Sink(io.RawIOBase):
    """A file whose bytes are taken while it is written. Later writes to bytes already taken are dropped."""

    def __post_init__(self) -> None:
        self._data = bytearray()
        self._taken = 0  # bytes before those of ``_data``
        self._place = 0

    def write(self, data: Any) -> int:
        block = bytes(data)
        skipped = min(max(0, self._taken - self._place), len(block))
        begin = self._place + skipped - self._taken
        self._data[begin : begin + len(block) - skipped] = block[skipped:]
        self._place += len(block)
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._taken + len(self._data))[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        data = bytes(self._data)
        self._taken += len(data)
        self._data.clear()
        return data


class SoundWriter:
    """Writes samples as a file whose length is not known yet.

    A FLAC is written at the end, since readers want to know its length.

    Raises RequestError for an unknown format, and if the library for it is missing.
    """

    def __init__(self, format: str, rate: int) -> None:
        check_format(format)
        self._format, self._rate = format, rate
        self._head = wav_header(rate) if format == "wav" else b""
        self._waits = format == "mp3"
        self._kept: list[NDArray[np.float32]] = []
        self._sink = _Sink()
        self._file = _open(self._sink, format, rate) if format in ("mp3", "opus") else None

    def write(self, samples: NDArray[np.float32]) -> bytes:
        """Return the bytes of the next samples, which may be none yet."""
        if self._format == "flac":
            self._kept.append(samples)
            return b""
        if self._file is None:
            head, self._head = self._head, b""
            return head + pcm(samples)
        self._file.write(samples)
        return self._sent(self._sink.take())

    def end(self) -> bytes:
        """Return the last bytes."""
        import numpy as np

        if self._format == "flac":
            return encode_file(np.concatenate([*self._kept, np.zeros(0, np.float32)]), self._rate, "flac")
        if self._file is None:
            return self._head
        self._file.close()
        return self._sent(self._sink.take(), last=True)

    def _sent(self, data: bytes, last: bool = False) -> bytes:
        """Return data without the first frame of an MP3, which is empty until the number of frames is known."""
        if not self._waits:
            return data
        self._head += data
        second = self._head.find(self._head[:2], 4)
        if second < 0 and not last:
            return b""
        rest, self._head, self._waits = self._head[max(second, 0) :], b"", False
        return rest


def encode_file(samples: NDArray[np.float32], rate: int, format: str) -> bytes:
    """Return samples ``[n]`` between -1 and 1, ``rate`` a second, as the bytes of a file.

    Raises RequestError for an unknown format, and if the library for it is missing.
    """
    check_format(format)
    if format in _KINDS:
        file = io.BytesIO()
        with _open(file, format, rate) as sound:
            sound.write(samples)
        return file.getvalue()
    data = pcm(samples)
    return wav_header(rate, len(data)) + data if format == "wav" else data


def check_format(format: str) -> None:
    """Raise RequestError for an unknown format, and if the library for it is missing."""
    if format not in FORMATS:
        raise RequestError(f"unknown format of sound {format!r}; choose {alternatives(FORMATS)}")
    if format in _KINDS:
        _soundfile(format)


def pcm(samples: NDArray[np.float32]) -> bytes:
    """Return samples as 16-bit integers, the lower byte first."""
    import numpy as np

    return np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav_header(rate: int, n_bytes: int | None = None) -> bytes:
    """Return the header of a WAV of one channel of 16 bits; the length is unknown if it is None."""
    data, riff = (_UNKNOWN, _UNKNOWN) if n_bytes is None else (n_bytes, n_bytes + 36)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + form + struct.pack("<4sI", b"data", data)


def _open(file: Any, format: str, rate: int) -> Any:
    kind, subtype = _KINDS[format]
    # A stream's first frame cannot say how many follow, from which readers know the length unless all are of one size.
    how = {"bitrate_mode": "CONSTANT", "compression_level": 0.5} if format == "mp3" else {}
    return _soundfile(format).SoundFile(file, "w", rate, 1, subtype, format=kind, **how)


def _soundfile(format: str) -> Any:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: libsndfile is missing
        problem = f"{format} needs soundfile: pip install soundfile; wav and pcm need nothing"
        raise MissingPackageError("audio", problem) from None
    return soundfile
