"""The architecture contract: from a file's metadata to a graph."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pumice.errors import ModelError

if TYPE_CHECKING:
    from pumice.graph import GraphBuilder, Tensor

_REQUIRED: Any = object()


class HParams:
    """A model's hyperparameters: the metadata keys that begin with its architecture's name.

    Every reader takes the key without that prefix and a default; without a default a missing key is a
    ModelError, as is a value of another type.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.architecture = str(metadata.get("general.architecture", ""))

    def int(self, key: builtins.str, default: builtins.int = _REQUIRED) -> builtins.int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        return value

    def float(self, key: builtins.str, default: builtins.float = _REQUIRED) -> builtins.float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, value, "a number")
        return float(value)

    def bool(self, key: builtins.str, default: builtins.bool = _REQUIRED) -> builtins.bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def str(self, key: builtins.str, default: builtins.str = _REQUIRED) -> builtins.str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "text")
        return value

    def per_layer(self, key: builtins.str, n_layer: builtins.int, default: Any = _REQUIRED) -> list[Any]:
        """A value for each layer: GGUF writes either an array or one value for all."""
        value = self._get(key, default)
        if isinstance(value, (bool, int, float)):
            return [value] * n_layer
        if isinstance(value, builtins.str):
            raise self._wrong(key, value, "a value for each layer")
        values = value.tolist() if hasattr(value, "tolist") else list(value)
        if len(values) < n_layer:
            raise self._wrong(key, f"{len(values)} values", f"at least {n_layer} values, one a layer")
        return values[:n_layer]

    def _get(self, key: builtins.str, default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is _REQUIRED:
            raise ModelError(f"metadata key {self.architecture}.{key} is missing from the file")
        return value

    def _wrong(self, key: builtins.str, value: Any, expected: builtins.str) -> ModelError:
        return ModelError(f"metadata key {self.architecture}.{key} is {value!r}, expected {expected}")


class Architecture(ABC):
    """A model family. ``__init__`` reads hyperparameters, ``build`` composes operations; both run once a load."""

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams
        self.n_layer = positive(hparams, "block_count")
        self.n_embd = positive(hparams, "embedding_length")
        self.n_ctx_train = positive(hparams, "context_length")

    @abstractmethod
    def build(self, g: GraphBuilder) -> Tensor:
        """Trace the model: from ``g.tokens`` and ``g.positions`` to logits ``[n_outputs, n_vocab]``."""


def positive(hparams: HParams, key: str) -> int:
    """An integer hyperparameter of at least 1."""
    value = hparams.int(key)
    if value < 1:
        raise ModelError(f"metadata key {hparams.architecture}.{key} is {value}, it must be at least 1")
    return value
