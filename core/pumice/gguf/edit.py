"""Edit the metadata and the names of tensors of a file."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pumice.errors import GGUFError
from pumice.gguf.copy import ByteProgress, copy_tensors, encoded_metadata
from pumice.gguf.output import write_errors
from pumice.gguf.parser import ParsedFile, parse
from pumice.gguf.values import EncodedValue
from pumice.gguf.writer import Writer

SECTOR = 512  # bytes that a disk writes atomically


def edit(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    values: Mapping[str, EncodedValue] | None = None,
    removed: Collection[str] = (),
    renamed_keys: Mapping[str, str] | None = None,
    renamed_tensors: Mapping[str, str] | None = None,
    force: bool = False,
    progress: ByteProgress | None = None,
) -> bool:
    """Edit a file, or write an edited copy to ``out``. Return True if tensors were copied.

    Edits are atomic: in place if all changes lie within one sector of the disk, otherwise by a copy that replaces the
    file. In a split model only the file ``path`` changes.

    Raises:
        GGUFError: a key or tensor does not exist, or a new name is already in use.
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
    """Overwrite the header in place if possible; return False if not."""
    (new,) = writer.headers
    if writer.offsets != [tensor.offset for tensor in file.tensors.values()]:
        return False
    if not writer.offsets and len(new) != file.n_bytes:
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
    file: ParsedFile, values: Mapping[str, EncodedValue], removed: Collection[str], renamed: Mapping[str, str]
) -> dict[str, EncodedValue]:
    """Return the new metadata: existing keys keep their positions, and new ones follow."""
    for key in removed:
        if key not in file.metadata:
            raise GGUFError(f"{file.path}: no metadata key {key!r}")
    keys = dict(zip(file.metadata, _renamed(file, "metadata key", file.metadata, renamed), strict=True))
    kept = encoded_metadata(file.metadata, without=removed)
    return {**{keys[key]: value for key, value in kept.items()}, **values}


def _renamed(file: ParsedFile, what: str, names: Iterable[str], renamed: Mapping[str, str]) -> Sequence[str]:
    """Return all names in order, with the renamed ones replaced."""
    before = list(names)
    for name in renamed:
        if name not in before:
            raise GGUFError(f"{file.path}: no {what} {name!r}")
    after = [renamed.get(name, name) for name in before]
    for name in renamed.values():
        if after.count(name) > 1:
            raise GGUFError(f"{file.path}: the {what} {name!r} would occur twice")
    return after
