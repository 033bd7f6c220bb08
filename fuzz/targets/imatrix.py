"""Importance matrices of both formats: an error, or finite sums that survive a round trip."""

from collections.abc import Iterable
from struct import pack

import numpy as np

import gguf_bytes as raw
from fuzz.files import folder, scratch
from fuzz.growth import chosen
from pumice.errors import GGUFError, QuantizeError
from pumice.imatrix.files import CHUNK_TOKENS, CHUNKS, DATASETS, read_sums, write_sums

MODULES = ("pumice.imatrix.files", "pumice.imatrix.sums")
MAX_LEN = 2000
TOKENS = (
    b"imatrix.chunk_size",
    b"imatrix.chunk_count",
    b"imatrix.datasets",
    b".in_sum2",
    b".counts",
    b"\1\0\0\0",
    b"\xff" * 4,
)


def seeds() -> Iterable[bytes]:
    yield gguf_file([raw.entry(CHUNKS, raw.U32, pack("<I", 3)), raw.entry(CHUNK_TOKENS, raw.U32, pack("<I", 512))])
    yield gguf_file([raw.entry(CHUNKS, raw.F32, pack("<f", 3)), raw.entry(CHUNK_TOKENS, raw.STRING, raw.string("512"))])
    values = np.arange(4, dtype="<f4").tobytes()
    yield pack("<ii", 1, 3) + b"a.w" + pack("<ii", 2, 4) + values
    yield pack("<ii", 1, 3) + b"a.w" + pack("<ii", 2, 4) + values + pack("<ii", 7, 4) + b"text"


def gguf_file(entries: list[bytes]) -> bytes:
    text = raw.entry(DATASETS, raw.ARRAY, raw.array(raw.STRING, 1, raw.string("a.txt")))
    tensors = [raw.tensor("a.in_sum2", [4, 2]), raw.tensor("a.counts", [1, 2], 0, 32)]
    return raw.gguf([*entries, text], tensors, np.arange(12, dtype="<f4").tobytes() + bytes(32))


def check(data: bytes) -> None:
    try:
        sums = read_sums(scratch("data.imatrix", data))
    except (QuantizeError, GGUFError) as error:
        assert str(error).isprintable(), str(error)
        return
    assert sums.chunk_size > 0
    for entry in sums.tensors.values():
        assert np.isfinite(entry.squares).all()
    if chosen(data, 8):
        path = folder() / "again.gguf"
        try:
            write_sums(path, sums, force=True)
        except GGUFError:
            return  # a name that is too long, or a duplicate
        again = read_sums(path)
        assert sorted(again.tensors) == sorted(sums.tensors)
        for name, entry in sums.tensors.items():
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(again.tensors[name].squares, entry.squares.astype(np.float32))
