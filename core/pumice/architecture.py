"""The architecture contract: from a file's metadata to a graph."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pumice.errors import ModelError

if TYPE_CHECKING:
    from pumice.graph import GraphBuilder, Tensor, TensorSource

MAIN = "main"  # every model's graph
ENCODER = "encoder"  # reads the prompt, whose memory the main graph, a decoder, attends to
DRAFT = "draft"  # layers that draft a token, from tokens and ``hidden [n_tokens, n_embd]``
STREAM = "stream"  # output of ``MAIN``: hidden states of all tokens, from which layers that draft continue
FEATURES = "features"  # of a draft model: computes ``hidden`` from inputs of the target model's layers
MEDIA = "media"  # the main graph with embeddings of media among its tokens; derived from it
MEDIA_TOGETHER = "media together"  # like MEDIA, for steps of one image whose tokens attend to each other both ways
ALIGN = "align"  # a decoder up to its ``queries [n_outputs, n_heads, n]`` of heads that follow a sound
HEAD = "head"  # follows pooling: computes ``embedding`` or ``scores`` from ``pooled [n_seqs, n_embd]``

SOUND_WINDOW = "encoder.context_length"
"""Key of a model that writes down speech: the positions of the sound with which its prompts begin."""

MediaKind: TypeAlias = Literal["image", "audio", "video"]

_REQUIRED: Any = object()


class HParams:
    """A model's hyperparameters: the metadata keys that begin with its architecture's name.

    Every reader takes the key without that prefix and a default; without a default a missing key raises
    ModelError, as does a value of another type.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.architecture = str(metadata.get("general.architecture", ""))

    def get_int(self, key: str, default: int = _REQUIRED) -> int:
        """Return an integer. Raises ModelError for another type, or a missing key without a default."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"is {value!r}, expected an integer")
        return value

    def get_float(self, key: str, default: float = _REQUIRED) -> float:
        """Return a number as float. Raises ModelError for another type, or a missing key without a default."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, f"is {value!r}, expected a number")
        return float(value)

    def get_bool(self, key: str, default: bool = _REQUIRED) -> bool:
        """Return true or false. Raises ModelError for another type, or a missing key without a default."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {value!r}, expected true or false")
        return value

    def get_str(self, key: str, default: str = _REQUIRED) -> str:
        """Return a text. Raises ModelError for another type, or a missing key without a default."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, f"is {value!r}, expected text")
        return value

    def per_layer(self, key: str, n_layer: int, default: Any = _REQUIRED) -> list[Any]:
        """Return ``n_layer`` values, from an array or a single value for all layers.

        Raises ModelError for a text, an array that is too short, or a missing key without a default.
        """
        value = self._get(key, default)
        if isinstance(value, (bool, int, float)):
            return [value] * n_layer
        if isinstance(value, str):
            raise self.wrong(key, f"is {value!r}, expected a value for each layer")
        values = value.tolist() if hasattr(value, "tolist") else list(value)
        if len(values) < n_layer:
            raise self.wrong(key, f"has {len(values)} values, expected at least {n_layer} values, one per layer")
        return values[:n_layer]

    def integers(self, key: str, default: Sequence[int] = _REQUIRED) -> list[int]:
        """Return an array of integers. Raises ModelError for other values, or a missing key without a default."""
        value = self._get(key, default)
        values = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(values, (list, tuple)) or any(type(item) is not int for item in values):
            raise self.wrong(key, f"is {value!r}, expected a list of integers")
        return list(values)

    def positive(self, key: str, most: int | None = None) -> int:
        """Return an integer from 1 to ``most``. Raises ModelError for another value or a missing key."""
        value = self.get_int(key)
        if value < 1:
            raise self.wrong(key, f"is {value}, but must be at least 1")
        if most is not None and value > most:
            raise self.wrong(key, f"is {value}, expected at most {most}")
        return value

    def number(self, key: str, default: float = _REQUIRED, low: float = 0.0) -> float:
        """Return a finite number of at least ``low``.

        Raises ModelError for another value, or a missing key without a default.
        """
        value = self.get_float(key, default)
        if not math.isfinite(value) or value < low:
            raise self.wrong(key, f"is {value}, but must be a number of at least {low:g}")
        return value

    def count(self, key: str, layer: int, default: int = _REQUIRED, low: int = 1) -> int:
        """Return the integer of a layer, of at least ``low``, from an array or a single value.

        Raises ModelError for another value, or a missing key without a default.
        """
        value = self.per_layer(key, layer + 1, default)[layer]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"is {value!r} for layer {layer}, expected an integer")
        if value < low:
            raise self.wrong(key, f"is {value} for layer {layer}, but must be at least {low}")
        return value

    def wrong(self, key: str, problem: str) -> ModelError:
        """Return the error "metadata key ``key`` ``problem``", such as "metadata key llama.block_count is 0"."""
        return ModelError(f"metadata key {self.architecture}.{key} {problem}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is _REQUIRED:
            raise ModelError(f"metadata key {self.architecture}.{key} is missing from the file")
        return value


def transcribes(metadata: Mapping[str, Any]) -> bool:
    """Return True if the model of a file writes down speech, by the special tokens of Whisper's vocabularies."""
    return f"{metadata.get('general.architecture')}.{SOUND_WINDOW}" in metadata


@dataclass(frozen=True)
class Masks:
    """The settings of a model that generates by filling masked positions (diffusion).

    Attributes:
        token: id of the mask token.
        shifted: the logits of a position are those of the next token.
    """

    token: int
    shifted: bool


@dataclass(frozen=True)
class MediaRules:
    """How a language model reads images among its tokens.

    Attributes:
        axes: for each pair of values that RoPE rotates, whether it turns by a token's place in time (0), its row (1),
            its column (2) (M-RoPE, Wang et al. 2024, arXiv:2409.12191) or, with ``own_grid``, the number of its image
            (3); empty if positions have one dimension.
        deepstack: for each further embedding of an image, side by side in its rows, the layer to whose output it is
            added (DeepStack, Meng et al. 2024, arXiv:2406.04334).
        both_ways: kinds of media whose tokens attend to each other in both directions, within one image or sound.
        windows_only: they do so only in layers whose attention has a window.
        windowless: maximum tokens of an image among which windows do not apply, in layers whose caches keep as
            many positions besides a query's own; 0 if windows apply.
        pads: further tables of embeddings give an image's tokens the row of token 0.
        scales: a factor of the embeddings of tokens applies to those of media, too.
        experts: by the name of a matrix in its layer, such as ``attn_qkv``, the matrix that replaces it for rows of
            media whose last value, an additional one, is 1 (visual experts, Wang et al. 2023, arXiv:2311.03079).
        router_bias: name of the biases in a layer by which a router chooses the experts of media, also where those of
            tokens are fixed; empty if media have no such biases. All kinds of media are then read ``both_ways``.
        own_grid: rows and columns begin at 0 in each image, and places in time count all embeddings (Hunyuan).
            Otherwise an image's axes begin at its place in time, and text continues after the largest of them.
    """

    axes: tuple[int, ...] = ()
    deepstack: tuple[int, ...] = ()
    both_ways: tuple[MediaKind, ...] = ()
    windows_only: bool = False
    windowless: int = 0
    pads: bool = False
    scales: bool = False
    experts: Mapping[str, str] = field(default_factory=dict)
    router_bias: str = ""
    own_grid: bool = False


class Architecture(ABC):
    """A model family. ``__init__`` reads hyperparameters, ``build`` composes operations; both run once per load.

    Attributes:
        speaks_tokens: a speech model reads the hidden states of a step together with its logits.
    """

    speaks_tokens: ClassVar[bool] = False

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams
        self.n_layer = hparams.positive("block_count")
        self.n_embd = hparams.positive("embedding_length")
        self.n_ctx_train = hparams.positive("context_length")
        self.decoder_start: int | None = None  # first token of a decoder whose prompt an encoder reads
        self.masks: Masks | None = None  # settings of models that generate by diffusion
        self.media_rules = MediaRules()
        self.target_layers: Sequence[int] = ()  # of a draft model: layers whose inputs its graph ``FEATURES`` reads

    @abstractmethod
    def build(self, g: GraphBuilder) -> Tensor | None:
        """Trace the model from ``g.tokens`` and ``g.positions``, and return logits ``[n_outputs, n_vocab]``.

        Other outputs are added with ``g.output``; return None if there are no logits.
        """

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        """Return the tensors of the file that the graphs may read; the others are treated as absent."""
        return tensors

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        """Return the functions that trace the model's graphs, by name and in order; they share weights and caches.

        Most models have only ``main``, traced by ``build``. A graph whose memory others read comes before them. Graphs
        without outputs are omitted.
        """
        return {MAIN: self.build}
