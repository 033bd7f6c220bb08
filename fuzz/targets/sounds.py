"""Encoded sounds: an error in one line, or finite samples, no more than half an hour of them."""

import io
from collections.abc import Iterable

import numpy as np

from pumice.errors import RequestError
from pumice.media.audio import MAX_SECONDS, RATE, decode

MODULES = ("pumice.media.audio",)
MAX_LEN = 3000
RUNS = 150
TOKENS = (
    b"RIFF", b"WAVE", b"fmt ", b"data", b"fact", b"LIST", b"fLaC", b"OggS", b"OpusHead", b"\x01vorbis", b"ID3", b"TAG",
    b"\xff\xfb\x90", b"FORM", b"AIFF", b"COMM", b"SSND", b"caff", b".snd", b"RF64", b"ds64", b"riff",
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    import soundfile

    samples = np.sin(np.arange(400) / 7)
    waves = [("WAV", subtype) for subtype in ("PCM_16", "FLOAT", "ULAW", "IMA_ADPCM")]
    others = [(kind, None) for kind in ("FLAC", "MP3", "AIFF", "AU", "CAF", "W64", "RF64")]
    for kind, subtype in (*waves, *others, ("OGG", "VORBIS"), ("OGG", "OPUS")):
        file = io.BytesIO()
        soundfile.write(file, samples, 8000, subtype, format=kind)
        yield file.getvalue()[:MAX_LEN]


def check(data: bytes) -> None:
    try:
        samples = np.frombuffer(decode(data), np.float32)
    except RequestError as error:
        assert str(error).startswith("audio: "), error
        return
    assert 0 < len(samples) <= (MAX_SECONDS + 1) * RATE
    assert np.isfinite(samples).all()
