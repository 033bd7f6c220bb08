"""`GGUFFile`: a model on disk, in one file or several."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from pumice.errors import GGUFError
from pumice.gguf.metadata import Metadata
from pumice.gguf.parser import DEFAULT_ALIGNMENT, VERSIONS
from pumice.gguf.split import parse_parts
from pumice.gguf.tensors import ModelTensor


class GGUFFile:
    """A GGUF model, mapped into memory; tensors are read when their data is used.

    Attributes:
        path: path of the file; the first one of a split model.
        metadata: keys and values, see `Metadata`.
        tensors: tensors by name, in file order.
        n_bytes: size of all files in bytes.
        version: version of the format, 2 or 3.
        alignment: alignment of tensor data in bytes.
    """

    def __init__(
        self,
        path: Path,
        metadata: Metadata,
        tensors: Mapping[str, ModelTensor],
        n_bytes: int,
        version: int = VERSIONS[-1],
        alignment: int = DEFAULT_ALIGNMENT,
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self.n_bytes = n_bytes
        self.version = version
        self.alignment = alignment

    @classmethod
    def open(cls, path: str | os.PathLike[str], mapped: bool = True) -> "GGUFFile":
        """Open a file; any part of a split model opens the whole. ``mapped``: False reads it into memory instead.

        Raises:
            GGUFError: the file cannot be read, is not valid GGUF (version 2 or 3, little-endian; specification: ggml,
                `docs/gguf.md`), or parts are missing or inconsistent. The message names file, field and offset.
        """
        parts = parse_parts(Path(path), mapped)
        first = parts[0]
        tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
        n_bytes = sum(part.n_bytes for part in parts)
        return cls(first.path, first.metadata, tensors, n_bytes, first.version, first.alignment)

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`. Raises GGUFError if it is missing."""
        value = self.metadata.get("general.architecture")
        if not isinstance(value, str):
            raise GGUFError(f"{self.path}: metadata key 'general.architecture' is missing or not a string")
        return value

    def close(self) -> None:
        """Release the file. It stays mapped while metadata, tensors or arrays that view it are in use."""
        self.metadata, self.tensors = Metadata({}), {}

    def __enter__(self) -> "GGUFFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self.metadata)} keys, {len(self.tensors)} tensors)"
