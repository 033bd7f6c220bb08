"""Send damaged, odd and hostile sound files to `pumice serve`, and report wrong answers and leaks.

    python bench/hostile_sounds.py [-n 1000] [--clients 2] [MODEL]

Writes JSON: answers by kind of file and status, those that are wrong, and memory, open files and threads of the
server's process before and after. Without a model, a tiny one with random weights hears.
"""

import base64
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile_files import arguments_of, ask, report
from serve_process import serving

from gguf_files import tiny_llama
from hearing_models import sound, write_folder
from hostile_images import EITHER, RIGHT, WRONG, Case, flipped, spliced, truncated
from hostile_sounds import hostile_sounds, pcm, wav, written
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model

_WRITTEN = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", None), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None),
            ("AIFF", "PCM_24"), ("AU", "ULAW"), ("CAF", "ALAC_16")]  # fmt: skip


def hostile(seed: int) -> tuple[str, bytes, set[int]]:
    """Return the kind of a file, the file, and the statuses that its request may have. Kinds take turns."""
    name, make = list(KINDS.items())[seed % len(KINDS)]
    data, statuses = make(Random(seed))
    return name, data, statuses


def any_sound(random: Random) -> bytes:
    """Return a short sound in any format, with one to three channels."""
    format, subtype = random.choice(_WRITTEN)
    mono = sound(random.uniform(0.05, 0.4))
    samples = np.stack([mono] * random.randint(1, 2), 1)
    return written(samples, random.choice([8_000, 16_000, 24_000, 48_000]), format, subtype)


def head_flipped(random: Random) -> Case:
    """Lengths, rates and numbers of channels that lie."""
    data = bytearray(any_sound(random))
    for _ in range(random.randint(1, 6)):
        data[random.randrange(min(64, len(data)))] = random.choice([0, 1, 127, 128, 255])
    return bytes(data), EITHER


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
    make.__name__: make for make in (head_flipped, noise, lying, not_finite, odd, listed, bomb)
}
KINDS |= {make.__name__: partial(make, any_file=any_sound) for make in (truncated, flipped, spliced)}


def hearing_model(folder: Path) -> str:
    """Write a tiny model with Qwen2-Audio's projector, and return its path."""
    write_folder(folder / "audio", "qwen2audio")
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return str(tiny_llama(folder / "tiny.gguf"))


def main() -> None:
    arguments = arguments_of(__doc__, "")
    with (
        TemporaryDirectory() as folder,
        serving([arguments.model or hearing_model(Path(folder)), "--chat-template", "chatml"]) as (server, url),
    ):

        def send(seed: int) -> tuple[str, int, str]:
            file = hostile(seed)
            sound = {"data": base64.b64encode(file[1]).decode(), "format": "wav"}
            return ask(url, file, {"type": "input_audio", "input_audio": sound}, "audio")

        report(send, server.pid, arguments.n, arguments.clients, n_warm_up=2 * len(KINDS))


if __name__ == "__main__":
    main()
