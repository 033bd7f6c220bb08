"""Files of the cache on disk: nothing, or the bytes that were written; a file that is refused is removed."""

import atexit
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fuzz.files import scratch
from pumice.cache_tiers.disk import DiskTier
from pumice.cache_tiers.entry import Entry
from pumice.cache_tiers.files import HEADER_BYTES, MAGIC, SECRET_BYTES, encode

MODULES = ("pumice.cache_tiers",)
MAX_LEN = 400
TOKENS = (MAGIC, b"PUMICKV\x00", bytes(8), b"\xff" * 8, bytes(32))

SECRET = bytes(range(SECRET_BYTES))
DATA = bytes(range(200))
ENTRY = Entry(bytes(range(32, 64)), 32, 32, len(DATA))
WHOLE = encode(ENTRY.key, DATA, SECRET)


def seeds() -> Iterable[bytes]:
    yield WHOLE
    yield encode(ENTRY.key, DATA[:-1], SECRET)
    yield encode(ENTRY.key, DATA, bytes(SECRET_BYTES))
    yield encode(bytes(32), DATA, SECRET)
    yield WHOLE[:-1]
    yield b""


_tiers: list[tuple[DiskTier, Path]] = []


def _tier() -> tuple[DiskTier, Path]:
    """The tier, and the file of its only entry."""
    if not _tiers:
        folder = scratch("secret", SECRET).parent / "cache"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(scratch("secret", SECRET), folder / "secret")
        tier = DiskTier(folder, 2**20)
        path = Path(tier._path(ENTRY))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _tiers.append((tier, path))
        atexit.register(tier.close, 1.0)
    return _tiers[0]


def check(data: bytes) -> None:
    tier, path = _tier()
    path.write_bytes(data)
    tier._bad.clear()
    tier.has(ENTRY)
    block = tier.get(ENTRY)
    if block is None:
        assert data != WHOLE
        assert not path.exists()
    else:
        content = data[HEADER_BYTES:]  # not DATA if a guided fuzzer sees the right checksum, with which it is compared
        written = encode(ENTRY.key, content, SECRET)
        assert data[len(MAGIC) :] == written[len(MAGIC) :]  # a use before may have just written the magic number again
        assert np.array_equal(block, np.frombuffer(content, np.uint8))
