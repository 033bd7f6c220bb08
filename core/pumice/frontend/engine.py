"""The engine of a model as its front sees it, in this process, in another one, or on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from pumice.architecture import MediaKind
from pumice.chat.mixed import PromptPart
from pumice.config import AdapterOptions, Config
from pumice.embeddings import Embeddings
from pumice.engine import EngineClient, Snapshot
from pumice.engine.messages import DEFAULT_TERMS, Facts, MediaValues, Speak, Terms
from pumice.errors import ModelClosedError
from pumice.gguf import GGUFFile
from pumice.grammar import GrammarChecker
from pumice.media.videos import VideoForm, VideoPlan
from pumice.model_files.summary import Summary
from pumice.model_files.tokenizer import LazyTokenizer
from pumice.registry import Registry
from pumice.speech.stream import SpeechStream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MediaEngine(Protocol):
    """Encodes images, sounds and videos. Every method raises RequestError for media that the model does not take."""

    @property
    def sound_rate(self) -> int:
        """Samples per second of the sounds that it encodes."""

    def check(self, kind: MediaKind) -> None:
        """Raise RequestError for a model that does not take this kind, before anything is decoded."""

    def encode(self, kind: MediaKind, values: MediaValues, form: VideoForm | None = None) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image, a sound of ``sound_rate`` or a video in a prompt.

        ``form``: that of the video, whose planned frames the values are. Raises PromptTooLongError for more rows than
        the context.
        """

    def plan_video(self, form: VideoForm) -> VideoPlan:
        """Return which frames of a video the model sees."""


class SpeechEngine(Protocol):
    """Makes sound, by a vocoder of audio codes or by a speech model."""

    @property
    def type(self) -> str:
        """Type of the speech model beside the model; empty without one."""

    def check(self) -> None:
        """Raise RequestError for a model without a vocoder or speech model, before anything is generated."""

    def decode(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        """Return the samples of audio codes, 24,000 per second. Raises RequestError."""

    def open(self, command: Callable[[int], Speak]) -> SpeechStream:
        """Start to speak a piece by the speech model; ``command`` makes the message of an id. Raises RequestError."""


class ModelEngine(Protocol):
    """The engine of one model: ``pumice.Model`` needs nothing else. Thread-safe.

    Attributes:
        file: The model's file, of which only the metadata is needed.
        config: Merged settings.
        registry: Registered plugins.
        tokenizer: Returns the tokenizer of the file.
        client: Sends requests and receives their events.
        checker: Checks the grammars of requests before the engine compiles them.
    """

    file: GGUFFile
    config: Config
    registry: Registry
    tokenizer: LazyTokenizer
    client: EngineClient
    checker: GrammarChecker

    @property
    def facts(self) -> Facts:
        """Facts about the model, known once it is loaded."""

    @property
    def summary(self) -> Summary:
        """Summary of the file's header."""

    @property
    def media(self) -> MediaEngine:
        """Encodes images, sounds and videos."""

    @property
    def speech(self) -> SpeechEngine:
        """Makes sound."""

    @property
    def closed(self) -> bool:
        """True after ``close``."""

    @property
    def error(self) -> Exception | None:
        """Error that ended the engine; None while it runs, and after ``close``."""

    def snapshot(self) -> Snapshot:
        """Return its load: waiting and running sequences, blocks of the cache in use."""

    def logits(
        self,
        ids: Sequence[int],
        prompt: Sequence[int],
        media: Sequence[Embeddings],
        adapters: Mapping[str, float] | None,
        first: int = 0,
        terms: Terms = DEFAULT_TERMS,
    ) -> NDArray[np.float32]:
        """Return the logits after each token, as ``Model.logits``, for a prompt that was read. Raises RequestError."""

    def state(self, tokens: Sequence[int], adapters: Mapping[str, float] | None, cache_salt: str) -> bytes:
        """Return the cache of a prompt as ``PromptCache.state`` does. Raises RequestError."""

    def restore(self, state: bytes) -> int:
        """Take up the cache of a prompt as ``PromptCache.restore`` does. Raises RequestError."""

    def set_adapters(self, adapters: Mapping[str, AdapterOptions]) -> None:
        """Let later requests use these adapters, by name, and no others; ``config`` has them then.

        Raises PumiceError if one cannot be used; nothing has changed then.
        """

    def close(self) -> None:
        """Cancel all requests, free the memory, and close the file."""

    def kill(self) -> None:
        """Kill the engine's process if it has one of its own; its requests then fail."""


def check_open(engine: ModelEngine) -> None:
    """Raise ModelClosedError after ``close``."""
    if engine.closed:
        raise ModelClosedError("the model is closed")
