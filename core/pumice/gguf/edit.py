"""Changing metadata, and names of tensors, of a file that is there."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pumice.errors import GGUFError
from pumice.gguf.copy import Progress, copy_tensors, encoded_metadata
from pumice.gguf.output import write_errors
from pumice.gguf.parser import ParsedFile, parse
from pumice.gguf.values import Encoded
from pumice.gguf.writer import Writer

SECTOR = 512  # bytes that a disk writes whole or not at all


def edit(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    values: Mapping[str, Encoded] | None = None,
    removed: Collection[str] = (),
    renamed_keys: Mapping[str, str] | None = None,
    renamed_tensors: Mapping[str, str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> bool:
    """Change a file, or write a changed copy to ``out``. Returns whether tensors had to be copied.

    The file itself changes at once or not at all: in place where all changes lie within one sector of the disk, else by
    a copy that takes its place. Of a split model the one file changes that ``path`` names.
    GGUFError names a key or tensor that is not there, or is there already.
    """
    file = parse(Path(path))
    entries = _edited(file, values or {}, removed, renamed_keys or {})
    names = _renamed(file, "tensor", file.tensors, renamed_tensors or {})
    tensors = [replace(tensor, name=name) for tensor, name in zip(file.tensors.values(), names, strict=True)]
    writer = Writer(out or path, entries, tensors, version=file.version, force=force or out is None)
    if out is None and _write_in_place(file, writer):
        return False
    with writer:
        copy_tensors(writer, tensors, progress)
    return True


def _write_in_place(file: ParsedFile, writer: Writer) -> bool:
    """Write the new header over the old one, if it may be; False if not."""
    (new,) = writer.headers
    if writer.offsets != [tensor.offset for tensor in file.tensors.values()]:
        return False
    with write_errors(file.path), file.path.open("r+b") as stream:
        old = stream.read(len(new))
        changed = [i for i, (before, after) in enumerate(zip(old, new, strict=True)) if before != after]
        if not changed:
            return True
        start, end = changed[0], changed[-1] + 1
        if start // SECTOR != (end - 1) // SECTOR:
            return False
        stream.seek(start)
        stream.write(new[start:end])
        stream.flush()
        os.fsync(stream.fileno())
    return True


def _edited(
    file: ParsedFile, values: Mapping[str, Encoded], removed: Collection[str], renamed: Mapping[str, str]
) -> dict[str, Encoded]:
    """The new metadata: old keys keep their places, new ones come last."""
    for key in removed:
        if key not in file.metadata:
            raise GGUFError(f"{file.path}: there is no metadata key {key!r}")
    keys = dict(zip(file.metadata, _renamed(file, "metadata key", file.metadata, renamed), strict=True))
    kept = encoded_metadata(file.metadata, without=removed)
    return {**{keys[key]: value for key, value in kept.items()}, **values}


def _renamed(file: ParsedFile, what: str, names: Iterable[str], renamed: Mapping[str, str]) -> Sequence[str]:
    """All names in order, new ones in the places of old ones."""
    before = list(names)
    for name in renamed:
        if name not in before:
            raise GGUFError(f"{file.path}: there is no {what} {name!r}")
    after = [renamed.get(name, name) for name in before]
    for name in renamed.values():
        if after.count(name) > 1:
            raise GGUFError(f"{file.path}: two of them would be the {what} {name!r}")
    return after
