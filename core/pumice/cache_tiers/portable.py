"""The cache of one prompt as bytes, which another process with the same model and settings takes up again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from pumice.cache_tiers.entry import Entry
from pumice.errors import RequestError

_BEGINNING = b"pumice-state-1\n"
_Size = Annotated[int, Meta(ge=0, le=2**53)]


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    identity: Annotated[bytes, Meta(max_length=64)]
    n_tokens: _Size
    entries: list[tuple[Annotated[bytes, Meta(min_length=32, max_length=32)], _Size, _Size, _Size]]


class PortableState(msgspec.Struct, frozen=True):
    """What a cache holds of one prompt.

    Attributes:
        identity: hash of everything that decides the bytes besides tokens and salts.
        n_tokens: tokens of the prompt that it covers.
        entries: blocks, and the recurrent state after them.
        rows: contents of each entry, uint8 ``[n_bytes]``.
    """

    identity: bytes
    n_tokens: int
    entries: Sequence[Entry]
    rows: Sequence[NDArray[np.uint8]]

    def to_bytes(self) -> bytes:
        """Return the state as bytes."""
        listed = [(entry.key, entry.n_past, entry.n_tokens, entry.n_bytes) for entry in self.entries]
        header = msgspec.msgpack.encode(_Header(self.identity, self.n_tokens, listed))
        return b"".join([_BEGINNING, len(header).to_bytes(8, "little"), header, *(row.tobytes() for row in self.rows)])

    @classmethod
    def from_bytes(cls, data: bytes) -> PortableState:
        """Return the state of bytes. Raises RequestError for other bytes."""
        begin = len(_BEGINNING) + 8
        length = int.from_bytes(data[len(_BEGINNING) : begin], "little")
        try:
            if not data.startswith(_BEGINNING) or begin + length > len(data):
                raise ValueError
            header = msgspec.msgpack.decode(data[begin : begin + length], type=_Header)
        except (ValueError, msgspec.DecodeError):
            raise RequestError("state: these bytes are none that state returned") from None
        entries = [Entry(*fields) for fields in header.entries]
        ends = np.cumsum([begin + length, *(entry.n_bytes for entry in entries)]).tolist()
        if ends[-1] != len(data):
            raise RequestError(f"state: {len(data)} bytes, expected {ends[-1]}; the state is cut or damaged")
        whole = np.frombuffer(data, np.uint8)
        rows = [whole[first:last] for first, last in pairwise(ends)]
        return cls(header.identity, header.n_tokens, entries, rows)
