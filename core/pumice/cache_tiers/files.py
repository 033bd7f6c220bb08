"""The format of a stored entry: a header, then the bytes.

    8 bytes  magic number, with the version of the format
    8 bytes  number of bytes after the header, little-endian
    32 bytes key of the entry
    32 bytes BLAKE2b of everything else, keyed with the folder's secret

A file is used only if all of it is exactly as expected. Its bytes are numbers of a cache: they decide no length, no
address and no type, so nothing is parsed. The secret makes a file from elsewhere invalid, however it was made.
"""

from __future__ import annotations

import hashlib
import struct

MAGIC = b"PUMICKV\x01"
_HEADER = struct.Struct("<8sQ32s32s")
HEADER_BYTES = _HEADER.size
SECRET_BYTES = 32


def encode(key: bytes, data: bytes | memoryview, secret: bytes) -> bytes:
    """Return the content of an entry's file."""
    return b"".join((_HEADER.pack(MAGIC, len(data), key, _checksum(key, data, secret)), data))


def decode(content: bytes, key: bytes, n_bytes: int, secret: bytes) -> memoryview | None:
    """Return the ``n_bytes`` bytes of the entry ``key``; None if the content is not exactly such a file."""
    if len(content) != HEADER_BYTES + n_bytes:
        return None
    data = memoryview(content)[HEADER_BYTES:]
    magic, length, stored_key, checksum = _HEADER.unpack_from(content)
    if (magic, length, stored_key) != (MAGIC, n_bytes, key) or checksum != _checksum(key, data, secret):
        return None
    return data


def _checksum(key: bytes, data: bytes | memoryview, secret: bytes) -> bytes:
    hashed = hashlib.blake2b(MAGIC + struct.pack("<Q", len(data)) + key, digest_size=32, key=secret)
    hashed.update(data)
    return hashed.digest()
