"""GGUF files byte by byte, so that tests can write what no writer would."""

from collections.abc import Sequence
from struct import pack

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return pack("<Q", len(raw)) + raw


def entry(key: str | bytes, type: int, value: bytes) -> bytes:
    return string(key) + pack("<I", type) + value


def array(type: int, n: int, items: bytes) -> bytes:
    return pack("<IQ", type, n) + items


def tensor(name: str | bytes, ne: Sequence[int], type: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    n_dims = len(ne) if n_dims is None else n_dims
    return string(name) + pack("<I", n_dims) + pack(f"<{len(ne)}Q", *ne) + pack("<IQ", type, offset)


def gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; the counts are true unless given."""
    n_entries = len(entries) if n_entries is None else n_entries
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    head = b"GGUF" + pack("<IQQ", version, n_tensors, n_entries) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data
