"""Identity of cached bytes besides their tokens: a hash of the model's files and of other facts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

FORMAT = 1
"""Version of the meaning of cached bytes; a change makes all earlier ones useless."""

_HEAD = 2**20  # bytes of a file's beginning, where formats keep their headers
_SAMPLES, _SAMPLE = 64, 4096  # further pieces, and bytes of each


def identity_of(files: Iterable[str | os.PathLike[str]], *facts: object) -> bytes:
    """Return a hash, 32 bytes, of files and facts.

    A file counts by its size, the time of its last change, its beginning, and pieces of the rest: reading all of a
    large model would take longer than most prompts. A folder counts by its files. Raises OSError.
    """
    hashed = hashlib.blake2b(repr((FORMAT, facts)).encode(), digest_size=32)
    for named in files:
        for path in _files(Path(named)):
            status = path.stat()
            hashed.update(repr((path.name, status.st_size, status.st_mtime_ns)).encode())
            with path.open("rb") as file:
                hashed.update(file.read(_HEAD))
                for i in range(_SAMPLES):
                    file.seek(status.st_size * i // _SAMPLES)
                    hashed.update(file.read(_SAMPLE))
    return hashed.digest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file())
    else:
        yield path
