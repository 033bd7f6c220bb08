"""A seeded mutator of bytes, which takes about as long as the cheapest check."""

from collections.abc import Iterator, Sequence
from random import Random

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_REPEATS = (1, 1, 2, 9)


def mutations(seeds: Sequence[bytes], tokens: Sequence[bytes], max_len: int, seed: int) -> Iterator[bytes]:
    """Yield the seeds, then mutated inputs without end. Equal arguments give equal inputs.

    Of two seeds the shorter is changed. Inputs that are appended to ``seeds`` meanwhile are changed too.
    """
    yield from list(seeds)
    bits = Random(seed).getrandbits
    inputs: Sequence[bytes] = seeds or [b""]
    while True:
        random = bits(64)
        one, other = inputs[(random >> 8) % len(inputs)], inputs[(random >> 36) % len(inputs)]
        data = one if len(one) <= len(other) else other
        for _ in range(1 + (random & 3)):
            data = _edited(data, bits(64), inputs, tokens)
        yield data[:max_len]


def _edited(data: bytes, random: int, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Return the data with one change, which the 64 bits of ``random`` determine."""
    kind, more, place = random & 7, random >> 3 & 0x1FFFFFFF, random >> 32
    position = place % (len(data) + 1)
    before = data[:position]
    match kind:
        case 0 if position < len(data):
            return before + bytes((data[position] ^ 1 << (more & 7),)) + data[position + 1 :]
        case 1:
            return before + data[position + 1 + (more & 15) :]
        case 2:
            n = 1 + (more & 7)
            return (
                before + (random * 0x9E3779B97F4A7C15 >> 3 & (1 << 8 * n) - 1).to_bytes(n, "little") + data[position:]
            )
        case 3:
            width = 1 << (more & 3)
            number = _NUMBERS[(more >> 2) % len(_NUMBERS)] & (1 << 8 * width) - 1
            return before + number.to_bytes(width, "little") + data[position + width :]
        case 4 if tokens:
            return before + tokens[more % len(tokens)] + data[position:]
        case 5:
            piece = data[position : position + 1 + (more & 63)]
            return before + piece * _REPEATS[more >> 6 & 3] + data[position:]
        case 6:
            other = seeds[more % len(seeds)]
            return before + other[(random >> 20) % (len(other) + 1) :]
        case _:
            return before
