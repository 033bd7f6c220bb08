"""A seeded mutator of bytes without coverage, for machines without atheris."""

from collections.abc import Iterator, Sequence
from random import Random

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutations(seeds: Sequence[bytes], tokens: Sequence[bytes], max_len: int, seed: int) -> Iterator[bytes]:
    """Yield the seeds, then mutated inputs without end. Equal arguments give equal inputs."""
    yield from seeds
    random = Random(seed)
    seeds = seeds or [b""]
    while True:
        data = bytearray(random.choice(seeds))
        for _ in range(1 + random.getrandbits(2)):
            _edit(data, random, seeds, tokens)
        yield bytes(data[:max_len])


def _edit(data: bytearray, random: Random, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> None:
    position = random.randrange(len(data) + 1)
    match random.randrange(8):
        case 0 if data:
            data[position % len(data)] ^= 1 << random.getrandbits(3)
        case 1:
            del data[position : position + 1 + random.getrandbits(4)]
        case 2:
            data[position:position] = random.randbytes(1 + random.getrandbits(3))
        case 3:
            width = random.choice((1, 2, 4, 8))
            data[position : position + width] = (random.choice(_NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
        case 4 if tokens:
            data[position:position] = random.choice(tokens)
        case 5:
            piece = data[position : position + 1 + random.getrandbits(6)]
            data[position:position] = piece * random.choice((1, 1, 2, 9))
        case 6:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[position:] = other[start:]
        case _:
            del data[position:]
