"""Parse one file, from the first byte to the list of its tensors."""

import os
from dataclasses import dataclass
from io import BufferedReader
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from pumice.errors import GGUFError
from pumice.gguf.cursor import Cursor
from pumice.gguf.metadata import MAX_ENTRIES, MIN_ENTRY_BYTES, Metadata, read_metadata
from pumice.gguf.tensors import MIN_INFO_BYTES, GGUFTensor, read_tensors

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class ParsedFile:
    """The content of one file, which is a whole model or a part of a split one."""

    path: Path
    version: int
    alignment: int
    metadata: Metadata
    tensors: dict[str, GGUFTensor]
    n_bytes: int


class _Copy(mmap):
    """The content of a file in memory of its own. Nothing of it can be released, since it cannot be read again."""

    def madvise(self, *_: int) -> None:
        return


def parse(path: Path, mapped: bool = True) -> ParsedFile:
    """Map and parse a file. Raises GGUFError, which names file, field and offset, if it is invalid.

    ``mapped``: False reads the file into memory instead.
    """
    return parse_buffer(path, _map(path, mapped))


def parse_buffer(path: Path, buffer: mmap, n_bytes: int | None = None) -> ParsedFile:
    """Parse a file in memory; ``path`` is for messages. Raises like `parse`.

    ``n_bytes``: size of the file if the buffer is only its beginning, which must hold the whole header. Raises
    MissingBytesError if it does not. The data of tensors beyond the buffer cannot be read.
    """
    cursor = Cursor(path, buffer, n_bytes)
    version = _read_version(cursor)
    n_tensors = cursor.count("number of tensors", MIN_INFO_BYTES, MAX_ENTRIES)
    n_entries = cursor.count("number of metadata entries", MIN_ENTRY_BYTES, MAX_ENTRIES)
    metadata = read_metadata(cursor, n_entries)
    alignment = _alignment(cursor, metadata)
    tensors = read_tensors(cursor, n_tensors, alignment)
    return ParsedFile(path, version, alignment, metadata, tensors, cursor.size)


def _map(path: Path, mapped: bool) -> mmap:
    """Map the whole file read-only, or read it."""
    try:
        mode = path.stat().st_mode
        if S_ISDIR(mode):
            raise GGUFError(f"{path}: expected a GGUF file, but this is a directory")
        if not S_ISREG(mode):
            raise GGUFError(f"{path}: not a regular file")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise GGUFError(f"{path}: expected a GGUF file, but this file is empty")
            return mmap(file.fileno(), 0, access=ACCESS_READ) if mapped else _copy(file)
    except FileNotFoundError:
        raise GGUFError(f"{path}: no such file") from None
    except OSError as error:
        raise GGUFError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # a path with a null byte
        raise GGUFError(f"{str(path)!r}: {error}") from None


def _copy(file: BufferedReader) -> mmap:
    """Read a file into memory. Raises OSError if it is shortened meanwhile."""
    copy = _Copy(-1, os.fstat(file.fileno()).st_size)
    rest = memoryview(copy)
    while rest:
        n_read = file.readinto(rest)
        if not n_read:
            raise OSError("the file became shorter while it was read")
        rest = rest[n_read:]
    return copy


def _read_version(cursor: Cursor) -> int:
    cursor.need(min(len(MAGIC), cursor.size))
    magic = cursor.buffer[: len(MAGIC)]
    if magic != MAGIC:
        raise cursor.error(f"not a GGUF file: begins with {magic!r} instead of {MAGIC!r}")
    cursor.offset = len(MAGIC)
    version = cursor.u32("version")
    if version in VERSIONS:
        return version
    if version and version & 0xFFFF == 0:
        problem = "the file is big-endian; convert it with gguf-convert-endian from the gguf package"
    elif version == 1:
        problem = "version 1 is no longer in use; convert the model again"
    else:
        problem = f"unknown version {version}; versions {VERSIONS[0]} to {VERSIONS[-1]} are supported"
    raise cursor.error(problem, len(MAGIC))


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or value <= 0 or value & (value - 1):
        cursor.field = "metadata key 'general.alignment'"
        raise cursor.error(f"{value!r} is not a power of two")
    return value
