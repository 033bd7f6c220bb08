"""SentencePiece's replacement table: an error, or the result of a step-by-step reading, in linear time."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from fuzz.draw import Draw
from fuzz.growth import check_linear, chosen
from pumice.errors import TokenizerError
from pumice.tokenizers.charsmap import Charsmap
from tokenizer_fixtures import fixture

MODULES = ("pumice.tokenizers.charsmap",)
MAX_LEN = 8000
TOKENS = ("é".encode(), "e\u0301".encode(), "ﬁ".encode(), b"\0", b"\0\1\0\0", b"\x61\1\0\0", b"\0\0\0\x80")


def seeds() -> Iterable[bytes]:
    table = bytes(value % 256 for value in fixture("unigram")["metadata"]["tokenizer.ggml.precompiled_charsmap"])
    if len(table) < MAX_LEN - 60:
        yield len(table).to_bytes(4, "little") + table + "Hello ﬁ １２ e\u0301ö\u3000x".encode()
    yield len(table_of(b"a", b"x")).to_bytes(4, "little") + table_of(b"a", b"x") + b"banana"
    yield len(table_of(b"ab", b"")).to_bytes(4, "little") + table_of(b"ab", b"") + b"abcabaab"
    yield len(table_of("é".encode(), b"e")).to_bytes(4, "little") + table_of("é".encode(), b"e") + "éa".encode()


def table_of(text: bytes, replacement: bytes) -> bytes:
    """Return a table with a single replacement; the units of a node's children are 256 apart from those of the next."""
    units = np.zeros(256 * (len(text) + 2), "<u4")
    node = 0
    for depth, byte in enumerate(text):
        base = 256 * (depth + 1)
        units[node] |= (node ^ base) << 10
        node = base ^ byte
        units[node] = byte
    base = 256 * (len(text) + 1)
    units[node] |= (node ^ base) << 10 | 1 << 8
    units[base] = 1 << 31
    return units.nbytes.to_bytes(4, "little") + units.tobytes() + replacement + b"\0"


def check(data: bytes) -> None:
    draw = Draw(data)
    size = int.from_bytes(draw.bytes(4), "little") % (len(data) + 1)
    table = draw.bytes(size)
    text = draw.rest().decode(errors="replace")
    try:
        charsmap = _charsmap(table)
        normalized = charsmap.normalize(text)
        expected = _step_by_step(charsmap, text)
    except TokenizerError as error:
        assert str(error).isprintable()
        return
    assert normalized == expected, (normalized, expected)
    if chosen(data, 256):
        check_linear(charsmap.normalize, text[:2], text[2:])


@lru_cache(256)
def _charsmap(table: bytes) -> Charsmap:
    return Charsmap(list(table) if table else None)


def _step_by_step(charsmap: Charsmap, text: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(text):
        length, replacement = charsmap.replacement(text[position : position + 64]) or (1, text[position])
        parts.append(replacement)
        position += length
    return "".join(parts)
