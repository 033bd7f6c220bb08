"""Copy models between single files and split files."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from pumice.errors import GGUFError
from pumice.gguf.metadata import Metadata
from pumice.gguf.reader import GGUFFile
from pumice.gguf.split import SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS
from pumice.gguf.tensors import ModelTensor
from pumice.gguf.values import EncodedValue
from pumice.gguf.writer import Described, Writer, padded

PIECE = 1 << 26  # bytes copied at a time
SPLIT_KEYS = (SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS)

ByteProgress = Callable[[int, int], None]  # called with bytes done and total bytes


def encoded_metadata(metadata: Metadata, without: Collection[str] = ()) -> dict[str, EncodedValue]:
    """Return all keys except those ``without``, with the values encoded as in the file."""
    return {key: metadata.encoded(key) for key in metadata if key not in without}


def copy_tensors(writer: Writer, tensors: Iterable[ModelTensor], progress: ByteProgress | None = None) -> None:
    """Copy the data of tensors from another file, whose memory is released."""
    done, total = 0, sum(tensor.nbytes for tensor in writer.tensors)
    for tensor in tensors:
        data = tensor.data.reshape(-1)
        for start in range(0, tensor.nbytes, PIECE):
            end = min(start + PIECE, tensor.nbytes)
            writer.write(data[start:end])
            tensor.release(start, end)
            done += end - start
            if progress is not None:
                progress(done, total)


def split(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    parts: Callable[[Sequence[Described]], list[int]],
    *,
    force: bool = False,
    progress: ByteProgress | None = None,
) -> list[Path]:
    """Write a model as several files ``out-00001-of-0000N.gguf``, and return their paths.

    parts: returns the number of tensors in each file; see `parts_by_number` and `parts_by_size`.
    """
    with GGUFFile.open(path) as file:
        tensors = list(file.tensors.values())
        entries = encoded_metadata(file.metadata, without=SPLIT_KEYS)
        numbers = parts(tensors)
        with Writer(out, entries, tensors, parts=numbers, version=file.version, force=force) as writer:
            copy_tensors(writer, tensors, progress)
        return writer.paths


def merge(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: ByteProgress | None = None,
) -> None:
    """Write a split model, named by any of its parts, as one file. Raises GGUFError for a model that is not split."""
    with GGUFFile.open(path) as file:
        if not file.metadata.get(SPLIT_COUNT):
            raise GGUFError(f"{path}: not a part of a split model, so there is nothing to merge")
        tensors = list(file.tensors.values())
        entries = encoded_metadata(file.metadata, without=SPLIT_KEYS)
        with Writer(out, entries, tensors, version=file.version, force=force) as writer:
            copy_tensors(writer, tensors, progress)


def parts_by_number(tensors: Sequence[Described], most: int) -> list[int]:
    """Return parts of at most ``most`` tensors."""
    return [min(most, len(tensors) - start) for start in range(0, len(tensors), most)]


def parts_by_size(tensors: Sequence[Described], most: int) -> list[int]:
    """Return parts of at most ``most`` bytes; a larger tensor gets a part of its own."""
    parts, size = [0], 0
    for tensor in tensors:
        n_bytes = padded(tensor.nbytes)
        if parts[-1] and size + n_bytes > most:
            parts.append(0)
            size = 0
        parts[-1] += 1
        size += n_bytes
    return parts
