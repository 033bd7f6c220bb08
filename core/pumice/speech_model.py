"""The contract of speech models: a language model whose hidden states become frames of sound by a second file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from pumice.architecture import HParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.graph import GraphBuilder

Array: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True)
class AddedRows:
    """Token ids, to the embedding of each of which a row of ``rows [n, width]`` is added."""

    tokens: Sequence[int]
    rows: Array


PromptRows: TypeAlias = "Sequence[int] | Array | AddedRows"
"""A part of the language model's prompt: token ids, rows of embeddings ``[n, width]``, or sums of both."""


@dataclass(frozen=True)
class SpeechGraph:
    """A graph of a speech model.

    Attributes:
        build: traces it; its values are the graph's outputs.
        n_rows: maximum rows of a step.
        n_ctx: maximum positions of its sequence, whose attention a cache serves; 0 if steps are independent.
        n_layer: its layers; -1 if they are as many as the file's ``block_count``.
    """

    build: Callable[[GraphBuilder], None]
    n_rows: int
    n_ctx: int = 0
    n_layer: int = -1


class GraphRuns(Protocol):
    """Runs the graphs of a speech model."""

    def __call__(self, graph: str, n_rows: int, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the outputs of a step of ``n_rows`` by name. Steps of a graph with a cache follow each other."""

    def begin(self, graph: str) -> None:
        """Begin the sequence of a graph with a cache anew."""


@dataclass(frozen=True)
class SpeechStep:
    """The next parts of the language model's sequence, and the frame ``[values]`` that they follow, if any."""

    parts: Sequence[PromptRows]
    frame: Array | None = None


class LastRow(NamedTuple):
    """The hidden state ``[width]`` of the last position that the language model has read, and its logits, if wanted."""

    hidden: Array
    logits: Array


class SpeechVocabulary(Protocol):
    """The tokenizer of the language model."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""

    def find(self, token: str) -> int | None:
        """Return the id of a special token; None if there is none."""


@dataclass(frozen=True)
class SpokenText:
    """A piece of a text, which is spoken at once.

    Attributes:
        text: what is said.
        tokens: token ids that the language model reads before it speaks.
        before_voice: those that come before the rows of a voice, if there is one.
        max_frames: frames after which the speech ends at the latest.
        n_after: frames that follow the end of the speech.
        codes: for each of ``before_voice``, then of ``tokens``, the code whose row is added to its embedding; -1 for
            none. Empty without any.
        end: code that ends the speech; -1 without one.
    """

    text: str
    tokens: list[int]
    before_voice: list[int]
    max_frames: int
    n_after: int
    codes: list[int] = field(default_factory=list)
    end: int = -1


@dataclass(frozen=True)
class SpeechTask:
    """A piece of a speech with its settings.

    Attributes:
        text: the piece.
        voice: rows ``[n, width]`` of the voice, or None.
        temperature: that of the sampler.
        random: source of random numbers.
    """

    text: SpokenText
    voice: Array | None
    temperature: float
    random: np.random.Generator


class FrameDecoder(Protocol):
    """Turns the frames of one speech into samples, some of them at a time."""

    def decode(self, frames: Array) -> Array:
        """Return the samples ``[n * samples_per_frame]`` of the next frames ``[n, values]``."""


class SpeechModel(ABC):
    """The speech model of a projector file whose ``clip.gen.audio.projector_type`` it is registered for.

    ``__init__`` reads the keys ``clip.gen.audio`` and, unless the file has no encoder of voices, ``clip.audio``.

    Attributes:
        samples_per_frame: samples of a frame, at 24,000 a second.
        window: frames that are decoded at once.
        default_temperature: temperature unless a request has its own.
        max_voice_seconds: seconds of a voice that are heard; the rest is left out.
        width: values of a hidden state, and of a row of embeddings.
        reads_logits: frames are made of the logits ``[n_vocab]``, too, which only language models give whose
            architecture has ``speaks_tokens``.
    """

    samples_per_frame: ClassVar[int]
    window: ClassVar[int]
    default_temperature: ClassVar[float]
    max_voice_seconds: ClassVar[float] = 30.0
    reads_logits: ClassVar[bool] = False

    def __init__(self, hparams: HParams, voice: HParams | None) -> None:
        self.hparams = hparams
        self.width = hparams.positive("projection_dim")

    @classmethod
    def has_speaker(cls, name: str, vocabulary: SpeechVocabulary) -> bool:
        """Return True if a voice of this name is part of the model."""
        return False

    @classmethod
    @abstractmethod
    def pieces(cls, text: str, vocabulary: SpeechVocabulary, language: str = "", speaker: str = "") -> list[SpokenText]:
        """Return the pieces of a text. Raises RequestError for a text or language that cannot be spoken.

        ``language``: such as "english"; empty leaves it to the model. ``speaker``: name of a voice of the model.
        """

    @abstractmethod
    def graphs(self) -> Mapping[str, SpeechGraph]:
        """Return the graphs by name."""

    @abstractmethod
    def voice(self, run: GraphRuns, samples: Array) -> Array:
        """Return the rows ``[n, width]`` of a voice, from samples at 24,000 a second. Raises RequestError."""

    @abstractmethod
    def frames(self, run: GraphRuns, task: SpeechTask) -> Generator[SpeechStep, LastRow, None]:
        """Make the frames of a piece, each of the row that the language model gives for the step that is yielded.

        Frames of several speeches alternate, so a sequence of a graph with a cache ends before the next step.
        """

    @abstractmethod
    def decoder(self, run: GraphRuns) -> FrameDecoder:
        """Return the decoder of a new speech. It uses other graphs than ``frames``, in another thread."""
