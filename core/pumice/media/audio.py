"""Sounds of prompts as samples. Files are decoded by libsndfile in a confined worker process."""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.errors import MediaError, MissingPackageError
from pumice.isolation import CallLimits, WorkerPool
from pumice.media.encoded import MAX_BYTES, check_rate, decode_base64, decode_data_url, named_errors, read_source
from pumice.media.sound_files import SoundFormat, encode_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RATE = 16_000  # samples a second that encoders take, unless they say another number
VOICE_RATE, VOICE_SECONDS = 24_000, 30  # of a voice that a speech model hears
MAX_SECONDS = 30 * 60  # of a sound
MAX_CHANNELS = 16
MIN_RATE, MAX_RATE = 4_000, 192_000  # samples a second of a file
VOICE_SOUNDS = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aiff")
"""Endings of files that are voices."""
AUDIO_TYPES = ("audio", "audio_url", "input_audio")  # of parts of messages
FORMATS = ("WAV", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF", "W64", "RF64", "WAVEX")  # names of libsndfile
_SHOWN = "WAV, FLAC, OGG (Vorbis, Opus), MP3 or AIFF"
_LOUDEST = 1e6  # full scale is 1; integers that were only converted to float stay below
_BLOCK = 1 << 16  # samples that are decoded at once
_UNKNOWN_FRAMES = 2**63 - 1  # of a file that was streamed, as libsndfile says
_LIMITS = CallLimits(
    cpu_seconds=20, memory=2 << 30, max_in=MAX_BYTES + 1024, max_out=4 * VOICE_RATE * MAX_SECONDS + (1 << 16)
)


_LOST = re.compile(r"Skipped \d+ bytes|hole|Corrupted|Junk after the last page")
"""Reports of libsndfile and libmpg123 about data that they could not read, in the middle or at the end of a file."""
_WRONG_COUNT = "Xing stream size off"  # libmpg123's report of a header that names another size than the file has
_WAV_SIZES = re.compile(r"data : (\d+) \(should be (\d+)\)")
_STREAMED_WAV = 0x7FFF_0000  # bytes from which on the size of a WAV's data stands for an unknown one
_MOST_MISSING = 0.02  # of a sound whose header counts other samples, such as those of an encoder's delay

_MAGIC = re.compile(rb"RIFF.{4}WAVE|RF64|fLaC|OggS|ID3|\xff[\xe2-\xff]|FORM.{4}AIF[FC]|caff|\.snd", re.DOTALL)


def is_sound(head: bytes) -> bool:
    """Return True for the first bytes of a file, 12 or more, that are those of a sound."""
    return _MAGIC.match(head) is not None


class Audio:
    """A sound of a prompt.

    Args:
        source: Path, bytes of a file (WAV, FLAC, OGG, MP3 or AIFF), or array ``[samples]`` or ``[samples, channels]``:
            float of -1 to 1, or int16. Channels are mixed.
        rate: Samples a second of an array; a file has its own.

    Attributes:
        RATE: samples a second of what ``samples`` returns.
    """

    RATE: ClassVar = RATE

    def __init__(self, source: Any, rate: int | None = None) -> None:
        self.source = source
        self.rate = rate
        self._target = RATE  # samples a second of an array's content

    @classmethod
    def from_url(cls, url: str) -> Audio:
        """Return the sound of a ``data:`` URL. Raises RequestError for any other URL, which is never fetched."""
        return cls(decode_data_url(url, "audio", "audio/wav"))

    @classmethod
    def from_base64(cls, text: str) -> Audio:
        """Return the sound of a file in base64. Raises RequestError for other texts, and files that are too large."""
        return cls(decode_base64(text, "audio"))

    def samples(self) -> NDArray[np.float32]:
        """Return float32 ``[n]``: one channel of 16,000 samples a second.

        Raises RequestError for a file that cannot be read, or a sound that is damaged or beyond a limit.
        """
        with named_errors(self.source):
            return samples_of(Audio(self.source, self.rate).content())

    def at(self, rate: int) -> Audio:
        """Return the sound, for an encoder of ``rate`` samples a second."""
        sound = Audio(self.source, self.rate)
        sound._target = rate
        return sound

    def save(self, path: str | Path, format: SoundFormat | None = None) -> None:
        """Write an array as a file of its own rate, with one channel of 16 bits.

        Args:
            path: File to write.
            format: wav, flac, mp3, opus or pcm (samples without a header). None follows the name's ending.

        Raises RequestError for an unknown format, one whose library is missing, and a sound that is no array ``[n]``.
        """
        import numpy as np

        if not isinstance(self.source, np.ndarray) or self.source.ndim != 1 or self.rate is None:
            raise MediaError("audio", "only an array [samples] with its rate can be saved")
        kind = format or Path(path).suffix.removeprefix(".").lower()
        data = encode_file(_float(self.source), self.rate, kind)
        Path(path).write_bytes(data)

    def seconds(self) -> float:
        """Return the duration. The sound is decoded for it; raises as ``samples``."""
        return len(self.samples()) / RATE

    def content(self) -> bytes | NDArray[np.float32]:
        """Return the bytes of the file, or the samples of an array. Raises as ``samples``."""
        import numpy as np

        if not isinstance(self.source, np.ndarray):
            data = read_source(self.source, "audio", "a path, bytes or an array")
            if self.rate is not None:
                raise MediaError("audio", "rate belongs to an array; a file has its own")
            return data
        return self.array_samples(self._target)

    def array_samples(self, target: int) -> NDArray[np.float32]:
        """Return the samples of an array at ``target`` samples a second. Raises as ``samples``."""
        import numpy as np

        if self.rate is None:
            raise MediaError("audio", "an array needs its rate: pumice.Audio(samples, rate=16000)")
        check_rate(self.rate, "audio", "samples")
        array = self.source[:, None] if self.source.ndim == 1 else self.source
        if array.ndim != 2 or not (array.dtype == np.int16 or np.issubdtype(array.dtype, np.floating)):
            shape = list(self.source.shape)
            raise MediaError("audio", f"expected float or int16 [samples, channels], not {self.source.dtype} {shape}")
        check_form(len(array), self.rate, array.shape[1])
        blocks = (_float(array[i : i + _BLOCK]) for i in range(0, len(array), _BLOCK))
        return _joined(blocks, self.rate, target)


class SoundBudget:
    """The bytes and seconds that the sounds of one request take together, each at most those of one sound."""

    def __init__(self) -> None:
        self._bytes = 0
        self._samples = 0

    def check_bytes(self, sound: Audio) -> None:
        """Count a file before it is decoded. Raises RequestError for too many bytes together."""
        self._bytes += len(sound.source) if isinstance(sound.source, bytes | bytearray) else 0
        if self._bytes > MAX_BYTES:
            raise MediaError(
                "audio", f"the sounds of the request have more than {MAX_BYTES >> 20} MiB together; send fewer or less"
            )

    def checked(self, samples: NDArray[np.float32], rate: int = RATE) -> NDArray[np.float32]:
        """Return samples before they are encoded. Raises RequestError for too many seconds together."""
        self._samples += len(samples) * RATE // rate
        if self._samples > RATE * MAX_SECONDS:
            raise MediaError(
                "audio", f"the sounds of the request take more than {MAX_SECONDS // 60} minutes together; send fewer"
            )
        return samples


def samples_of(content: bytes | NDArray[np.float32], rate: int = RATE) -> NDArray[np.float32]:
    """Return the samples of ``Audio.content``, ``rate`` of a file's a second. Raises as ``Audio.samples``."""
    import numpy as np

    if isinstance(content, np.ndarray):
        return content
    function = {RATE: "decode", VOICE_RATE: "decode_fine"}[rate]
    return _checked(np.frombuffer(_workers().call(f"{__name__}:{function}", content, bytes), np.float32))


def voice_samples(sound: Audio) -> NDArray[np.float32]:
    """Return float32 ``[n]``: the first seconds of a voice, 24,000 samples a second. Raises as ``Audio.samples``."""
    import numpy as np

    source = sound.source
    if isinstance(source, np.ndarray):
        most = VOICE_SECONDS * sound.rate if sound.rate is not None else 0
        return Audio(source[:most] if most > 0 else source, sound.rate).array_samples(VOICE_RATE)
    with named_errors(source):
        content = sound.content()
        assert isinstance(content, bytes)
        data = _workers().call(f"{__name__}:decode_voice", content, bytes)
        return _checked(np.frombuffer(data, np.float32)[: VOICE_SECONDS * VOICE_RATE])


def read_voice(path: Path) -> Audio:
    """Return a voice's file as an array. Raises as ``voice_samples``."""
    return Audio(voice_samples(Audio(path)), VOICE_RATE)


def decode_voice(data: bytes) -> bytes:
    """Like ``decode``, for ``voice_samples``."""
    return decode(data, VOICE_RATE, VOICE_SECONDS)


def decode_fine(data: bytes) -> bytes:
    """Like ``decode``, for encoders of 24,000 samples a second."""
    return decode(data, VOICE_RATE)


def decode(data: bytes, rate: int = RATE, seconds: int = MAX_SECONDS) -> bytes:
    """Return the float32 samples of a file; runs in a worker. Raises RequestError.

    ``rate``: samples a second of the result. Of a sound with more than ``seconds`` the rest may be left out.
    """
    try:
        import soundfile
        import soxr  # noqa: F401  (before a file is read)
    except (ImportError, OSError):  # OSError: libsndfile is missing
        raise _missing() from None
    try:
        counted, data = _without_count(data)
        with _library_notes() as notes, soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in FORMATS:
                raise MediaError("audio", f"the format {file.format} is not supported; send {_SHOWN}")
            frames = counted if file.frames == _UNKNOWN_FRAMES else file.frames
            check_form(frames, file.samplerate, file.channels)
            # Else it seeks after each block, after which an MP3 lacks what earlier frames hold for the next ones.
            file.seekable = lambda: False
            samples, log = _joined(_blocks(file, seconds), file.samplerate, rate), file.extra_info
            n_missing = max(frames / file.samplerate - len(samples) / rate, 0.0) if seconds == MAX_SECONDS else 0.0
            is_counted = file.format != "MP3"
        _check_whole(log + "".join(notes), n_missing, len(samples) / rate, is_counted)
        return samples.tobytes()
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".")
        raise MediaError("audio", f"the bytes are no sound, or damaged: {reason}; send {_SHOWN}") from None
    except (ValueError, RuntimeError) as error:
        raise MediaError("audio", f"it cannot be decoded: {type(error).__name__}: {error}") from None


def _without_count(data: bytes) -> tuple[int, bytes]:
    """Return how many samples the header of a FLAC file counts (RFC 9639, 8.2), 0 if unknown, and the file without it.

    libsndfile would leave out the samples after them in silence. A tag behind the sound (ID3v1), at which it would
    fail, goes too.
    """
    if not data.startswith(b"fLaC"):
        return 0, data
    end = len(data) - 128 if data[-128:-125] == b"TAG" else None
    rate_and_count = int.from_bytes(data[18:26])
    rate = rate_and_count >> 36 << 36
    return rate_and_count - rate, data[:18] + rate.to_bytes(8) + data[26:end]


@contextmanager
def _library_notes() -> Iterator[list[str]]:
    """Collect what a library writes to the standard error of this process, which has no other threads."""
    notes: list[str] = []
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        yield notes
    finally:
        os.dup2(kept, 2)
        for end in (kept, writing):
            os.close(end)
        with suppress(BlockingIOError):
            notes.append(os.read(reading, 1 << 16).decode("utf-8", "replace"))
        os.close(reading)


def _check_whole(report: str, n_missing: float, n_read: float, is_counted: bool) -> None:
    """Raise RequestError for a file of which a part is damaged or missing, as the libraries report.

    Args:
        report: their texts.
        n_missing: seconds that the header counts, but the file does not have.
        n_read: seconds that were read.
        is_counted: the header's count is exact; that of an MP3 may be a guess.
    """
    sizes = _WAV_SIZES.search(report)
    is_short = sizes is not None and int(sizes[2]) < int(sizes[1]) < _STREAMED_WAV
    is_counted = is_counted or _WRONG_COUNT in report
    if _LOST.search(report) or is_short or (is_counted and n_missing > _MOST_MISSING * n_read):
        raise MediaError(
            "audio",
            f"the file is damaged or cut: only {n_read:.1f} seconds of it can be read, and parts may be missing; send "
            "a whole file, or repair it first, for example with: ffmpeg -i FILE repaired.wav",
        )


def check_form(frames: int, rate: int, channels: int) -> None:
    """Raise RequestError for a sound that is too long, or has an unusual rate or number of channels."""
    if not 1 <= channels <= MAX_CHANNELS:
        raise MediaError("audio", f"{channels} channels; 1 to {MAX_CHANNELS} are supported")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise MediaError("audio", f"{rate} samples a second; {MIN_RATE} to {MAX_RATE} are supported")
    if frames > rate * MAX_SECONDS:
        raise MediaError("audio", f"{frames / rate:.0f} seconds; at most {MAX_SECONDS} are supported")


def _blocks(file: Any, seconds: int) -> Iterator[NDArray[np.float32]]:
    """Yield the samples ``[n, channels]`` of an open file up to ``seconds``, however many its header names."""
    n_read, most = 0, file.samplerate * MAX_SECONDS
    limit = most + 1 if seconds == MAX_SECONDS else file.samplerate * seconds
    while n_read < limit and len(block := file.read(max(_BLOCK // file.channels, 1), dtype="float32", always_2d=True)):
        n_read += len(block)
        check_form(min(n_read, most + 1), file.samplerate, file.channels)
        yield block


def _joined(blocks: Iterator[NDArray[np.float32]], rate: int, target: int = RATE) -> NDArray[np.float32]:
    """Return blocks ``[n, channels]`` as one channel of ``target`` samples a second. Raises RequestError."""
    import numpy as np

    mixed = (block.mean(axis=1, dtype=np.float64).astype(np.float32) for block in blocks)
    parts = list(mixed if rate == target else _resampled(mixed, rate, target))
    return _checked(np.concatenate(parts) if parts else np.zeros(0, np.float32))


def _float(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return samples from -1 to 1, whose integers have 16 bits."""
    import numpy as np

    return np.asarray(values * np.float32(1 / 32768 if values.dtype == np.int16 else 1), np.float32)


def _resampled(blocks: Iterator[NDArray[np.float32]], rate: int, target: int) -> Iterator[NDArray[np.float32]]:
    import numpy as np

    try:
        import soxr
    except ImportError:
        raise _missing() from None
    stream = soxr.ResampleStream(rate, target, 1, dtype="float32", quality="HQ")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def _checked(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    if not len(samples):
        raise MediaError("audio", "the sound has no samples")
    if not np.isfinite(samples).all():
        raise MediaError("audio", "a sample is not a finite number")
    if (loudest := np.abs(samples).max()) > _LOUDEST:
        raise MediaError("audio", f"a sample of {loudest:.3g} is far beyond full scale, which is 1")
    return samples


@functools.cache
def _workers() -> WorkerPool:
    """Return the workers that this process shares."""
    return WorkerPool("decoding the sound", _LIMITS, n_workers=2)


def _missing() -> MissingPackageError:
    return MissingPackageError("audio", "decoding needs soundfile and soxr: pip install soundfile soxr")
