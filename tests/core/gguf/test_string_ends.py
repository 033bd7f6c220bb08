"""Ends of many strings, found at once, beside those that stepping from length to length finds."""

import random
import struct
from mmap import mmap

import numpy as np
import pytest

from pumice.gguf import metadata


def steps(data: bytes, start: int, n: int) -> list[int]:
    """Return the ends as the format's description defines them."""
    ends = []
    while len(ends) < n and start <= len(data) - 8:
        start += 8 + int.from_bytes(data[start : start + 8], "little")
        ends.append(start)
    return ends


def mapped(data: bytes) -> mmap:
    buffer = mmap(-1, len(data))
    buffer.write(data)
    return buffer


def packed(strings: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(string)) + string for string in strings)


@pytest.mark.parametrize("kind", ["words", "empty", "long", "zeros", "lengths"])
@pytest.mark.parametrize("seed", range(4))
def test_ends_are_those_of_single_steps(kind, seed, monkeypatch):
    monkeypatch.setattr(metadata, "_WINDOW_BYTES", 4096)
    monkeypatch.setattr(metadata, "_FEW_STRINGS", 8)
    rng = random.Random(seed)

    def string() -> bytes:
        if kind == "empty" and rng.random() < 0.05:
            return b""
        if kind == "long" and rng.random() < 0.02:
            return bytes(rng.choices(range(1, 256), k=rng.choice([255, 256, 700, 5000])))
        if kind == "zeros" and rng.random() < 0.05:
            return bytes(rng.choices([0, 1], [9, 1], k=rng.randrange(40)))
        if kind == "lengths" and rng.random() < 0.1:
            return struct.pack("<Q", rng.randrange(1, 200)) * 2
        return bytes(rng.choices(range(1, 256), k=rng.randrange(1, 12)))

    data = b"head" + packed([string() for _ in range(3000)])
    whole = len(data) - 8 * (seed % 2)  # also without the last length, or in the middle of a string
    buffer = mapped(data[:whole])
    for n in (0, 1, 7, 2999, 3000, 3001):
        assert metadata._string_ends(buffer, 4, n).tolist() == steps(data[:whole], 4, n)


def test_a_length_beyond_the_buffer_is_the_last_end():
    data = packed([b"word"] * 2000) + struct.pack("<Q", 2**40) + bytes(64)
    ends = metadata._string_ends(mapped(data), 0, 5000)
    assert ends.dtype == np.uint64
    assert ends.tolist() == steps(data, 0, 5000)


def test_short_strings_are_not_stepped_over(monkeypatch):
    data = packed([b"a token"] * 100_000)
    n_stepped = 0
    stepped = metadata._stepped_ends

    def count(buffer: mmap, start: int, n: int) -> np.ndarray:
        nonlocal n_stepped
        n_stepped += n
        return stepped(buffer, start, n)

    monkeypatch.setattr(metadata, "_stepped_ends", count)
    assert len(metadata._string_ends(mapped(data), 0, 100_000)) == 100_000
    assert n_stepped < 1000
