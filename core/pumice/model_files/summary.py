"""Summary of a model's header, enough to list the model without loading it."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.gguf import GGUFFile
from pumice.gguf.kinds import ADAPTER, CONTROL_VECTOR, kind_of
from pumice.notebook import facts_table, show_count
from pumice.wording import format_bytes


@dataclass(frozen=True)
class Summary:
    """Numbers and metadata of a model's file.

    Attributes:
        metadata: Metadata of the file, without its lists.
        n_parameters: Number of parameters of all tensors.
        n_bytes: Size of the file, or of all of its parts.
        n_vocab: Number of tokens; 0 without a tokenizer.
        file_type: Name under which `pumice quantize` makes such a file, such as ``Q4_K_M``; if the file has none, the
            type of most parameters.
        modified: Time of the last change, in seconds since 1970.
        digest: SHA-256, in hexadecimal, of the metadata without lists and of the tensors' names, types and shapes.
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
        """Return the summary of an open file; ``modified`` and ``n_bytes`` cover all parts of a split model."""
        metadata = file.metadata.scalars()
        parameters: Counter[str] = Counter()
        for tensor in file.tensors.values():
            parameters[tensor.type.name] += math.prod(tensor.shape)
        outline = [(tensor.name, tensor.type.name, tensor.shape) for tensor in file.tensors.values()]
        return cls(
            metadata=metadata,
            n_parameters=sum(parameters.values()),
            n_bytes=file.n_bytes,
            n_vocab=file.metadata.count("tokenizer.ggml.tokens"),
            file_type=_file_type(metadata) or (parameters.most_common(1)[0][0] if parameters else ""),
            modified=file.path.stat().st_mtime if file.path.exists() else 0.0,
            digest=hashlib.sha256(json.dumps([metadata, outline, file.n_bytes]).encode()).hexdigest(),
        )

    @property
    def architecture(self) -> str:
        """Value of ``general.architecture``; empty if the file has none."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def kind(self) -> str:
        """Kind of the file by its header: ``model``, ``adapter``, ``mmproj``, ``controlvector`` or another one."""
        return kind_of(self.metadata)

    @property
    def is_adapter(self) -> bool:
        """True for a LoRA adapter or a control vector."""
        return self.kind in (ADAPTER, CONTROL_VECTOR)

    def size(self, name: str) -> int:
        """Return a number of the architecture, such as ``context_length``; 0 if the file has none."""
        value = self.metadata.get(f"{self.architecture}.{name}", 0)
        return value if isinstance(value, int) else 0

    @property
    def facts(self) -> dict[str, object]:
        """Facts of the model by label, for people."""
        return {
            "architecture": self.architecture,
            "type": self.file_type,
            "parameters": f"{self.n_parameters:,}",
            "size": format_bytes(self.n_bytes),
            "vocabulary": show_count(self.n_vocab, "token"),
            "trained context": show_count(self.size("context_length"), "token"),
        }

    def _repr_html_(self) -> str:
        return facts_table(str(self.metadata.get("general.name", "model")), self.facts)


def _file_type(metadata: Mapping[str, Any]) -> str:
    from pumice.gguf.file_types import FILE_TYPES, GUESSED

    number = metadata.get("general.file_type")
    if not isinstance(number, int):
        return ""
    return next((name for name, type in FILE_TYPES.items() if type.number == number & ~GUESSED), "")
