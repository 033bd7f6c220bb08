"""The architecture contract: from a file's metadata to a graph."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumice.errors import ModelError

if TYPE_CHECKING:
    from pumice.graph import GraphBuilder, Tensor, TensorSource

MAIN = "main"  # the graph that every model has
ENCODER = "encoder"  # that which reads the prompt where the main graph is a decoder that attends to its memory
DRAFT = "draft"  # that of layers which guess a token more: takes ``hidden [n_tokens, n_embd]`` beside tokens
FEATURES = "features"  # that of a draft for another model: makes ``hidden`` of what went into layers of that one
HEAD = "head"  # that of what follows pooling: takes ``pooled [n_seqs, n_embd]``, gives ``embedding`` or ``scores``

_REQUIRED: Any = object()


class HParams:
    """A model's hyperparameters: the metadata keys that begin with its architecture's name.

    Every reader takes the key without that prefix and a default; without a default a missing key is a
    ModelError, as is a value of another type.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.architecture = str(metadata.get("general.architecture", ""))

    def get_int(self, key: str, default: int = _REQUIRED) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"is {value!r}, expected an integer")
        return value

    def get_float(self, key: str, default: float = _REQUIRED) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, f"is {value!r}, expected a number")
        return float(value)

    def get_bool(self, key: str, default: bool = _REQUIRED) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {value!r}, expected true or false")
        return value

    def get_str(self, key: str, default: str = _REQUIRED) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, f"is {value!r}, expected text")
        return value

    def per_layer(self, key: str, n_layer: int, default: Any = _REQUIRED) -> list[Any]:
        """A value for each layer: GGUF writes either an array or one value for all."""
        value = self._get(key, default)
        if isinstance(value, (bool, int, float)):
            return [value] * n_layer
        if isinstance(value, str):
            raise self.wrong(key, f"is {value!r}, expected a value for each layer")
        values = value.tolist() if hasattr(value, "tolist") else list(value)
        if len(values) < n_layer:
            raise self.wrong(key, f"is {len(values)} values, expected at least {n_layer} values, one a layer")
        return values[:n_layer]

    def integers(self, key: str, default: Sequence[int] = _REQUIRED) -> list[int]:
        """An array of integers."""
        value = self._get(key, default)
        values = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(values, (list, tuple)) or any(type(each) is not int for each in values):
            raise self.wrong(key, f"is {value!r}, expected a list of integers")
        return list(values)

    def positive(self, key: str) -> int:
        """An integer of at least 1."""
        value = self.get_int(key)
        if value < 1:
            raise self.wrong(key, f"is {value}, it must be at least 1")
        return value

    def number(self, key: str, default: float = _REQUIRED, low: float = 0.0) -> float:
        """A finite number of at least ``low``."""
        value = self.get_float(key, default)
        if not math.isfinite(value) or value < low:
            raise self.wrong(key, f"is {value}, it must be a number of at least {low:g}")
        return value

    def count(self, key: str, layer: int, default: int = _REQUIRED, low: int = 1) -> int:
        """The integer of one layer, of at least ``low``: GGUF writes one value for all layers or an array."""
        value = self.per_layer(key, layer + 1, default)[layer]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"is {value!r} for layer {layer}, expected an integer")
        if value < low:
            raise self.wrong(key, f"is {value} for layer {layer}, it must be at least {low}")
        return value

    def wrong(self, key: str, problem: str) -> ModelError:
        """The error that says what is wrong with the value of ``key``."""
        return ModelError(f"metadata key {self.architecture}.{key} {problem}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is _REQUIRED:
            raise ModelError(f"metadata key {self.architecture}.{key} is missing from the file")
        return value


@dataclass(frozen=True)
class Masks:
    """How a model generates that fills masked positions (diffusion): by its mask ``token``.

    ``shifted``: the logits of a position are those of the token after it.
    """

    token: int
    shifted: bool


class Architecture(ABC):
    """A model family. ``__init__`` reads hyperparameters, ``build`` composes operations; both run once a load."""

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams
        self.n_layer = hparams.positive("block_count")
        self.n_embd = hparams.positive("embedding_length")
        self.n_ctx_train = hparams.positive("context_length")
        self.decoder_start: int | None = None  # the token that a decoder begins with, where an encoder reads the prompt
        self.masks: Masks | None = None  # of a model that generates by diffusion

    @abstractmethod
    def build(self, g: GraphBuilder) -> Tensor | None:
        """Trace the model: from ``g.tokens`` and ``g.positions`` to logits ``[n_outputs, n_vocab]``, the result.

        A graph with other outputs names them with ``g.output``, and gives None if it has no logits.
        """

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        """The tensors of the file that the graphs may read: what a family has no use for is as if it were absent."""
        return tensors

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        """What traces each graph of the model, by name and in order; they share weights and caches.

        Most models have one: ``main``, which ``build`` traces. One that others read a memory of comes before them. Of
        one that gives no outputs there is none.
        """
        return {MAIN: self.build}
