"""Sound files that must be refused: damaged, lying, odd and too large ones."""

import io
import struct
from collections.abc import Callable, Iterator
from random import Random

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


RIGHT, WRONG, EITHER = {200}, {400}, {200, 400}
Case = tuple[bytes, set[int]]
_WRITTEN = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", None), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None),
            ("AIFF", "PCM_24"), ("AU", "ULAW"), ("CAF", "ALAC_16")]  # fmt: skip


def hostile(seed: int) -> tuple[str, bytes, set[int]]:
    """Return the kind of a file, the file, and the statuses that its request may have. Kinds take turns."""
    name, make = list(KINDS.items())[seed % len(KINDS)]
    data, statuses = make(Random(seed))
    return name, data, statuses


def any_file(random: Random) -> bytes:
    """Return a short sound in any format, with one to three channels."""
    format, subtype = random.choice(_WRITTEN)
    mono = sound(random.uniform(0.05, 0.4))
    samples = np.stack([mono] * random.randint(1, 2), 1)
    return written(samples, random.choice([8_000, 16_000, 24_000, 48_000]), format, subtype)


def truncated(random: Random) -> Case:
    data = any_file(random)
    return data[: random.randint(1, len(data) - 1)], EITHER


def flipped(random: Random) -> Case:
    data = bytearray(any_file(random))
    for _ in range(random.randint(1, 20)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data), EITHER


def head_flipped(random: Random) -> Case:
    """Lengths, rates and numbers of channels that lie."""
    data = bytearray(any_file(random))
    for _ in range(random.randint(1, 6)):
        data[random.randrange(min(64, len(data)))] = random.choice([0, 1, 127, 128, 255])
    return bytes(data), EITHER


def spliced(random: Random) -> Case:
    """The beginning of one file, and the end of another."""
    first, second = any_file(random), any_file(random)
    return first[: random.randrange(len(first))] + second[random.randrange(len(second)) :], EITHER


def noise(random: Random) -> Case:
    head = random.choice([b"", b"RIFF\xff\xff\xff\xffWAVEfmt ", b"fLaC", b"OggS", b"ID3\x04", b"\xff\xfb", b".snd"])
    return head + random.randbytes(random.randint(1, 3000)), WRONG if not head else EITHER


def lying(random: Random) -> Case:
    """A small file that claims to be huge, and is what it has."""
    size = random.choice([2**31 - 1, 2**32 - 1, 1 << 20])
    return wav(pcm(sound(0.2)), size=size, channels=random.choice([1, 2])), EITHER


def bomb(random: Random) -> Case:
    """Few bytes of silence that are longer than is allowed."""
    minutes, rate = random.choice([(31, 4000), (45, 4000)])
    return written(np.zeros(minutes * 60 * rate, np.int16), rate, "FLAC"), WRONG


def not_finite(random: Random) -> Case:
    values = sound(0.2).astype("<f4")
    values[random.randrange(len(values))] = random.choice([np.nan, np.inf, -np.inf])
    return wav(values.tobytes(), bits=32, form=3), WRONG


def odd(random: Random) -> Case:
    """Rates and numbers of channels that no encoder takes, or that are rare."""
    rate, channels, right = random.choice([
        (1, 1, WRONG), (3999, 1, WRONG), (4000, 1, RIGHT), (192_000, 16, RIGHT), (192_001, 1, WRONG),
        (16_000, 17, WRONG),
    ])  # fmt: skip
    return wav(pcm(sound(0.2)).ljust(channels * 6400, b"\0")[: channels * 6400], rate, channels), right


def listed(random: Random) -> Case:
    _, data, _ = random.choice(list(hostile_sounds()))
    return data, WRONG


KINDS: dict[str, Callable[[Random], Case]] = {
    make.__name__: make
    for make in (truncated, flipped, head_flipped, spliced, noise, lying, not_finite, odd, listed, bomb)
}
