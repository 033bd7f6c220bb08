"""Sound files that must be refused: damaged, lying, odd and too large ones."""

import io
import struct
from collections.abc import Iterator

import numpy as np

from hearing_models import sound


def wav(
    data: bytes, rate: int = 16_000, channels: int = 1, bits: int = 16, form: int = 1, size: int | None = None
) -> bytes:
    """Return a WAV file; ``form``: 1 for integers, 3 for floats; ``size``: of the data as the header says."""
    block = channels * bits // 8
    fields = struct.pack("<HHIIHH", form, channels, rate, rate * block % 2**32, block % 2**16, bits)
    size = len(data) if size is None else size
    body = b"WAVEfmt " + struct.pack("<I", 16) + fields + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", min(len(body), 2**32 - 1)) + body


def pcm(samples: np.ndarray) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def written(samples: np.ndarray, rate: int, format: str, subtype: str | None = None) -> bytes:
    """Return a file that soundfile writes."""
    import soundfile

    data = io.BytesIO()
    soundfile.write(data, samples, rate, format=format, subtype=subtype)
    return data.getvalue()


def hostile_sounds() -> Iterator[tuple[str, bytes, str]]:
    """Yield names, files, and what the error says."""
    tone = sound(0.2)
    flac = written(tone, 16_000, "FLAC")
    longer = bytearray(flac)
    longer[21:26] = bytes([flac[21] & 0xF0 | 0x0F]) + b"\xff\xff\xff\xff"  # total samples of STREAMINFO
    nan = np.full(100, np.nan, "<f4").tobytes()
    yield "empty data", wav(b""), "no samples"
    yield "text", b"Once upon a time " * 99, "no sound, or damaged"
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(99), "no sound, or damaged"
    yield "head alone", wav(pcm(tone))[:30], "damaged"
    yield "no channels", wav(pcm(tone), channels=0), "damaged|channels"
    yield "65,535 channels", wav(pcm(tone), channels=65535), "damaged|channels"
    yield "17 channels", wav(pcm(sound(1.7)), channels=17), "17 channels"
    yield "rate of 0", wav(pcm(tone), rate=0), "damaged|samples a second"
    yield "384 kHz", wav(pcm(tone), rate=384_000), "384000 samples a second"
    yield "4 GHz", wav(pcm(tone), rate=2**32 - 1), "damaged|samples a second"
    yield "NaN", wav(nan, bits=32, form=3), "not a finite number"
    yield "infinity", wav(np.full(100, np.inf, "<f4").tobytes(), bits=32, form=3), "not a finite number"
    yield "large floats", wav(np.full(300, 3e38, "<f4").tobytes(), 44_100, 2, 32, 3), "not a finite number"
    yield "31 minutes of silence", written(np.zeros(31 * 60 * 4000, np.int16), 4000, "FLAC"), "1860 seconds"
    yield "a header of months", bytes(longer), "seconds; at most 1800"
    yield "damaged FLAC", flac[:60] + bytes(len(flac) - 60), "no samples|damaged|decoded"
    yield "half of an OGG", written(tone, 16_000, "OGG")[:200], "damaged|no samples"
    yield "MP3 without frames", b"ID3\x04\x00\x00\x00\x00\x0f\x7f" + bytes(2000), "damaged|no samples"
    yield "MATLAB's format", written(tone, 16_000, "MAT5"), "MAT5 is not supported"
