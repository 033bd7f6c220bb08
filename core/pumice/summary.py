"""What a model's header says: enough to list it without loading it."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.gguf import GGUFFile


@dataclass(frozen=True)
class Summary:
    """Attributes:
    metadata: the file's, without its lists.
    n_parameters: of all tensors; n_bytes: of the file, or of all of its parts.
    n_vocab: tokens; 0 without a tokenizer.
    file_type: the name under which `pumice quantize` makes such a file, ``Q4_K_M`` say; where the file does not tell,
        the type of most parameters.
    modified: seconds since 1970.
    digest: SHA-256, in hexadecimal, of the metadata that is no list, and of the tensors' names, types and shapes.
    """

    metadata: Mapping[str, Any]
    n_parameters: int
    n_bytes: int
    n_vocab: int
    file_type: str
    modified: float
    digest: str

    @classmethod
    def of(cls, file: GGUFFile) -> Summary:
        metadata = {key: value for key, value in file.metadata.items() if isinstance(value, str | int | float)}
        parameters: Counter[str] = Counter()
        for tensor in file.tensors.values():
            parameters[tensor.type.name] += math.prod(tensor.shape)
        outline = [(tensor.name, tensor.type.name, tensor.shape) for tensor in file.tensors.values()]
        return cls(
            metadata=metadata,
            n_parameters=sum(parameters.values()),
            n_bytes=file.n_bytes,
            n_vocab=len(file.metadata.get("tokenizer.ggml.tokens", ())),
            file_type=_file_type(metadata) or (parameters.most_common(1)[0][0] if parameters else ""),
            modified=file.path.stat().st_mtime if file.path.exists() else 0.0,
            digest=hashlib.sha256(json.dumps([metadata, outline, file.n_bytes]).encode()).hexdigest(),
        )

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def size(self, name: str) -> int:
        """A number of the architecture: ``context_length``, ``embedding_length``, …; 0 where it is not told."""
        value = self.metadata.get(f"{self.architecture}.{name}", 0)
        return value if isinstance(value, int) else 0


def _file_type(metadata: Mapping[str, Any]) -> str:
    from pumice.quantize.file_types import FILE_TYPES, GUESSED

    number = metadata.get("general.file_type")
    if not isinstance(number, int):
        return ""
    return next((name for name, type in FILE_TYPES.items() if type.number == number & ~GUESSED), "")
