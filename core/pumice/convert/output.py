"""Write a converted model to a file, and choose the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pumice.convert.converted import ConvertedTensor
from pumice.gguf import GGUFFile, TensorInfo, Writer
from pumice.gguf.writer import Described

Parts = Callable[[Sequence[Described]], list[int]]


def write_model(
    file: GGUFFile,
    path: str | os.PathLike[str],
    *,
    parts: Parts | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write a model as a GGUF file, tensor by tensor, and return its path, or the paths of its parts.

    The file gets its name once it is complete.

    Args:
        file: model to write.
        path: path of the file.
        parts: returns the number of tensors in each part of a split model.
        force: replace an existing file.
        progress: called with the bytes written and the total bytes.

    Raises:
        GGUFError: a file cannot be written, or exists and ``force`` is False.
    """
    infos = [TensorInfo(name, tensor.type, tensor.shape) for name, tensor in file.tensors.items()]
    metadata = {key: file.metadata.encoded(key) for key in file.metadata}
    done, total = 0, sum(info.nbytes for info in infos)
    with Writer(path, metadata, infos, parts=parts and parts(infos), force=force) as writer:
        for tensor in file.tensors.values():
            for piece in tensor.pieces() if isinstance(tensor, ConvertedTensor) else (tensor.data,):
                writer.write(piece)
                done += piece.nbytes
                if progress:
                    progress(done, total)
            tensor.release()
    return writer.paths


def default_name(file: GGUFFile, type: str) -> Path:
    """Return a file name by the naming convention of GGUF files (ggml, `docs/gguf.md`).

    Examples are ``Llama-3.2-1B-Instruct-BF16.gguf`` and, without tensors, ``Llama-3.2-Instruct-vocab.gguf``.
    """
    import gguf

    name, basename, finetune, version, size = (
        file.metadata.get(f"general.{key}") for key in ("name", "basename", "finetune", "version", "size_label")
    )
    last = (size, type, None) if file.tensors else (None, None, "vocab")
    return Path(f"{gguf.naming_convention(name, basename, finetune, version, *last)}.gguf")
