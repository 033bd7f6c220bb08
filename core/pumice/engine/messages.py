"""Commands for the engine and its events: typed plain data, encoded for other processes by ``pumice.process.codec``.

Commands are sent one by one. Events are sent as one list per step, so that many sequences cost one message. The
constraints of the types are checked when a message arrives from another process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from pumice.architecture import MediaKind
from pumice.cache_tiers import Tally
from pumice.clients import CLIENT
from pumice.config import AdapterOptions
from pumice.embeddings import Count, Embeddings
from pumice.errors import RequestError
from pumice.grammar import Grammar, ReasoningBudget
from pumice.media.videos import VideoForm, VideoPlan
from pumice.options import REQUEST, Algorithm, LayerFunction, LogitsProcessor, StoppingCriteria
from pumice.proposers import choice_of
from pumice.speech_model import SpokenText
from pumice.timings import Timings as Timings
from pumice.wording import show_python

#: stop: an end-of-generation token, a stop token or a stop string; length: max_tokens; context_full: no position
#: is left in the context; timeout: the request's time is over; cancelled: by the caller, or the model was closed.
EngineFinishReason = Literal["stop", "length", "context_full", "timeout", "cancelled"]

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
VectorWidth = Annotated[int, Meta(ge=0, le=2**24)]  # of a vector
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
MAX_NAME: Final = 1000  # characters
Name = Annotated[str, Meta(max_length=MAX_NAME)]


@dataclass(frozen=True)
class PreparedText:
    """A text to embed, with its images and sounds: token ids, and embeddings in the place of some of them."""

    tokens: Sequence[int]
    media: Sequence[Embeddings] = ()


@dataclass(frozen=True)
class Request:
    """A prompt and the options of its generation, which ``pumice.options.RequestOptions`` describes.

    Options are checked here, and nowhere else: a request that exists is valid for any model.

    Attributes:
        prompt: Token ids, at least one. Those at positions of ``media`` are ignored.
        sampling: Parameters of the sampler chain by name; the others have the configured values. With ``samplers``
            parameters of other samplers are ignored.
        end_tokens: Token ids that end the text; None takes those of the model. ``stop_tokens`` are further ones.
        grammar: Grammar of the text; None allows any text.
        budget: Budget of reasoning tokens; None is unlimited.
        media: Images and sound of the prompt as embeddings, in the order of their positions.
        prompt_text: Text of the prompt, with which ``echo`` begins.
        top_positions: Number of first tokens whose log-probabilities list the most probable ones; None: all. Listing
            them takes a large part of the time of sampling a transcript.
    """

    prompt: Sequence[int]
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    samplers: Sequence[str] | None = None
    min_tokens: int = 0
    stop: Sequence[str] = ()
    special: Collection[int] = ()
    stop_tokens: Sequence[int] = ()
    end_tokens: frozenset[int] | None = None
    context_shift: bool = False
    n_ctx: int | None = None
    n: int = 1
    echo: bool = False
    suffix: str | None = None
    logprobs: int | None = None
    top_logprobs: int | None = None
    logprobs_sampled: bool = False
    logits_processor: LogitsProcessor | None = None
    stopping_criteria: StoppingCriteria | None = None
    on_layer: Mapping[int | str, LayerFunction] | None = None
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None
    newline_timeout: float | None = None
    grammar: Grammar | None = None
    budget: ReasoningBudget | None = None
    adapters: Mapping[str, float] | None = None
    diffusion_steps: int | None = None
    diffusion_algorithm: Algorithm = "confidence"
    block_length: int | None = None
    cfg_scale: float = 0.0
    speculate: str | None = None
    n_draft: int | None = None
    prediction: str | None = None
    request_id: str = ""
    media: Sequence[Embeddings] = ()
    prompt_text: str = ""
    top_positions: int | None = None

    def __post_init__(self) -> None:
        """Check the options, and give a single stop string, log-probabilities and the choice of drafts usual types.

        Raises:
            RequestError: An option has a wrong type, or is out of range.
        """
        object.__setattr__(self, "speculate", choice_of(self.speculate))
        for name, option in REQUEST.items():
            if (value := getattr(self, name)) is not option.default:
                option.check(value)
        if self.top_logprobs is not None and self.logprobs is not False:
            object.__setattr__(self, "logprobs", self.top_logprobs)
        elif isinstance(self.logprobs, bool):
            object.__setattr__(self, "logprobs", 0 if self.logprobs else None)
        object.__setattr__(self, "top_logprobs", None)  # so that a variant may have other logprobs
        if self.max_tokens is not None and 0 <= self.max_tokens < self.min_tokens:
            raise RequestError(f"min_tokens: {self.min_tokens} is above max_tokens, {self.max_tokens}")
        stops = [self.stop] if isinstance(self.stop, str) else () if self.stop is None else self.stop
        object.__setattr__(self, "stop", stops)
        if "" in stops:
            raise RequestError("stop: a text is empty, which would end every answer; leave it out")
        check_adapters(self.adapters)
        if not isinstance(self.sampling, Mapping) or not all(isinstance(name, str) for name in self.sampling):
            raise RequestError(f"sampling must be a mapping of names to values, not {show_python(self.sampling)}")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise RequestError(f"grammar must be a Grammar, not {show_python(self.grammar)}")
        if self.budget is not None and not isinstance(self.budget, ReasoningBudget):
            raise RequestError(f"budget must be a ReasoningBudget, not {show_python(self.budget)}")


def unknown_adapter(name: str, known: Collection[str]) -> RequestError:
    """Return the error for an adapter that a model does not have."""
    return RequestError(f"adapters: the model has no adapter {name!r}; it has: {', '.join(known) or 'none'}")


def wrong_scale(name: str, scale: object) -> RequestError:
    """Return the error for a scale that is not a finite number."""
    return RequestError(f"adapters: the scale of {name!r} must be a finite number, not {show_python(scale)}")


def check_adapters(adapters: Mapping[str, float] | None) -> None:
    """Raise RequestError unless ``adapters`` are None, or finite scales by name."""
    REQUEST["adapters"].check(adapters)
    for name, scale in (adapters or {}).items():
        if not math.isfinite(scale):
            raise wrong_scale(name, scale)


class Logprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log-probability of a token.

    Attributes:
        logprob: natural logarithm of the token's probability.
        top: the most probable tokens at this position with their log-probabilities, the most probable first.
    """

    logprob: float
    top: Sequence[tuple[Token, float]]


@dataclass(frozen=True)
class Snapshot:
    """The state of the engine between two batches.

    Attributes:
        n_waiting: requests of every kind that wait for room in the KV cache.
        n_running: sequences that are generated.
        n_reading: other requests that are computed: scores, logits, embeddings.
        n_slots: slots of concurrent sequences.
        n_slots_free: free slots.
        n_blocks: KV cache blocks by attention window in tokens (0: all tokens).
        n_blocks_free: free KV cache blocks by attention window; blocks that are only cached count as free.
        n_steps: steps computed since the model was loaded.
        n_lacked: generations that have waited for KV cache blocks since then.
        tiers: counts of the cache tiers in use, by name: ``ram`` and ``disk``.
    """

    n_waiting: Count
    n_running: Count
    n_slots: Count
    n_slots_free: Count
    n_blocks: Mapping[Count, Count]
    n_blocks_free: Mapping[Count, Count]
    n_steps: Count
    tiers: Mapping[Name, Tally] = field(default_factory=dict)
    n_reading: Count = 0
    n_lacked: Count = 0


MAX_MEDIA_BYTES: Final = 2 << 30


@dataclass(frozen=True)
class DeviceFacts:
    """Memory that a model takes on one device.

    Attributes:
        name: name of the device: ``vulkan0``, or that of a backend that is no GPU.
        is_gpu: True for a GPU.
        parts: bytes by part: attention, ffn, experts, embeddings, output, other, kv_cache, recurrent_state,
            activations.
        layers: numbers of layers of which the device holds something; the output counts as one more layer.
    """

    name: Name
    is_gpu: bool
    parts: dict[Name, Count]
    layers: list[Count]

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Facts:
    """Facts about an engine's model, known once it is loaded.

    Attributes:
        n_ctx: maximum positions of a sequence; ``n_ctx_train``: those that the model was trained for.
        n_cache: positions that the KV cache holds, of all sequences together; 0 without a cache.
        n_vocab: logits per token.
        backends: names of the backends in use, the one with most operations first.
        memory: allocated bytes by purpose: weights, kv_cache, activations.
        generates: True if it generates text; an encoder does not. ``fills_masks``: by diffusion.
        n_embd: values per embedding; 0 without embeddings.
        n_labels: scores per text; 0 if it does not rank texts.
        media_width: values of a row of media's embeddings; 0 without a projector.
        media: what the projector encodes; empty before it is open.
        sound_rate: samples a second of the sounds that it encodes.
        devices: what lies on which device, GPUs first.
        audio_codes: codes that the vocoder knows; 0 without one, and before it is open.
        samples_per_code: samples that it makes of each, or the speech model of a frame.
        speculates: True if requests without a choice of their own have proposers.
        speech: type of the speech model beside the model; empty without one, and before it is open.
        loras: names of the LoRA adapters; the other adapters are control vectors.
    """

    n_ctx: Count
    n_ctx_train: Count
    n_vocab: VectorWidth
    backends: list[Name]
    memory: dict[Name, Count]
    generates: bool = True
    fills_masks: bool = False
    n_embd: VectorWidth = 0
    n_labels: VectorWidth = 0
    media_width: VectorWidth = 0
    devices: list[DeviceFacts] = field(default_factory=list)
    media: list[MediaKind] = field(default_factory=list)
    sound_rate: Annotated[int, Meta(ge=16_000, le=24_000)] = 16_000
    audio_codes: Count = 0
    samples_per_code: Annotated[int, Meta(ge=0, le=2**16)] = 0
    speculates: bool = False
    speech: Annotated[str, Meta(max_length=64)] = ""
    n_cache: Count = 0
    loras: list[Name] = field(default_factory=list)

    @property
    def media_bytes(self) -> int:
        """Maximum bytes of the rows of a prompt's images: those of a whole context, or ``MAX_MEDIA_BYTES``."""
        return min(4 * self.n_ctx * self.media_width, MAX_MEDIA_BYTES)


class EngineMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of commands and events. A message is encoded as an array of its class's name and its fields."""


class Numbered(EngineMessage, frozen=True):
    """Base of commands and events of one request."""

    id: Id


class LastEvent(Numbered, frozen=True):
    """Base of the events that are the last of their request."""


V = TypeVar("V", covariant=True)


class Answer(LastEvent, Generic[V], frozen=True):
    """Base of the events that answer a ``Question``."""

    value: V


class Question(Numbered, Generic[V], frozen=True):
    """Base of the commands that one event answers, an ``answer`` with a value, unless they fail."""

    answer: ClassVar[type[Answer[object]]]


class Terms(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Terms on which a request of any kind is queued.

    Attributes:
        priority: requests with a higher one come first.
        timeout: seconds from its arrival to its end, those in the queue included; None for no limit.
        client: requests of one client take turns with those of others; without one each stands alone.
    """

    priority: int = 0
    timeout: float | None = None
    client: Name = msgspec.field(default_factory=CLIENT.get)

    def __post_init__(self) -> None:
        """Raise RequestError for an option that has a wrong type, or is out of range."""
        REQUEST["priority"].check(self.priority)
        REQUEST["timeout"].check(self.timeout)


DEFAULT_TERMS: Final = Terms(client="")


# --- commands, and the answers to questions


class Add(EngineMessage, frozen=True):
    """Generate ``request``; events have the id of the completion, which the sender chooses and never reuses.

    There are ``request.n`` ids. ``client`` is that of ``Terms``.
    """

    ids: Sequence[Id]
    request: Request
    client: Name = msgspec.field(default_factory=CLIENT.get)


Pooling = Literal["none", "mean", "cls", "last"]
"""Pooling of a text's hidden states to its embedding: none, their mean, the first, the last."""


class Encoded(Answer[Sequence[NDArray[np.float32]]], frozen=True):
    """The vectors of texts: float32 ``[n]`` each, or ``[n_tokens, n]`` without pooling."""


class Encode(Question[Sequence[NDArray[np.float32]]], frozen=True):
    """Encode each of ``texts``, given as token ids, to one vector or, without pooling, to one per token.

    ``scores``: return scores of the texts instead of embeddings. ``adapters``: scale of each adapter by name; None for
    the defaults. ``media``: images and sound of each text as embeddings, in the order of their positions, whose ids are
    ignored; empty if no text has any. ``aligned``: instead of vectors, return what share of the attention of each token
    of a decoder each of the first rows of its sound has; 0 for vectors.
    """

    answer = Encoded
    texts: Sequence[Sequence[int]]
    pooling: Pooling
    scores: bool = False
    adapters: Mapping[str, float] | None = None
    media: Sequence[Sequence[Embeddings]] = ()
    aligned: Count = 0
    terms: Terms = msgspec.field(default_factory=Terms)


MediaValues = NDArray[np.uint8] | NDArray[np.float32]
"""Pixels ``[height, width, 3]`` of an image, samples ``[n]`` of a sound, or frames ``[n, height, width, 3]``."""


class MediaEncoded(Answer[Sequence[str | Embeddings]], frozen=True):
    """Texts and embeddings of an image, a sound or a video, for a prompt."""


class EncodeMedia(Question[Sequence[str | Embeddings]], frozen=True):
    """Encode an image, a sound of ``Facts.sound_rate`` values a second, or the planned frames of a video.

    ``form``: that of a video. ``keep``: keep the rows until ``ReleaseMedia``, and name them in the answer.
    """

    answer = MediaEncoded
    kind: MediaKind
    shape: Annotated[Sequence[Count], Meta(max_length=4)]
    data: bytes
    form: VideoForm | None = None
    keep: bool = False

    @classmethod
    def of(
        cls, id: int, kind: MediaKind, values: MediaValues, form: VideoForm | None = None, keep: bool = False
    ) -> EncodeMedia:
        """Return the command that encodes these values."""
        return cls(id, kind, values.shape, values.tobytes(), form, keep)

    @property
    def values(self) -> MediaValues:
        """The pixels, samples or frames. Raises ValueError if the shape is not theirs."""
        if self.kind == "audio":
            return np.frombuffer(self.data, np.float32).reshape(self.shape)
        return np.frombuffer(self.data, np.uint8).reshape(self.shape)


class ReleaseMedia(Numbered, frozen=True):
    """Forget the rows that are kept for the ``EncodeMedia`` of this id; there is no answer.

    Requests that were sent before keep them for themselves.
    """


class VideoPlanned(Answer[VideoPlan], frozen=True):
    """Which frames of a video the model sees."""


class PlanVideo(Question[VideoPlan], frozen=True):
    """Choose the frames of a video that the model sees."""

    answer = VideoPlanned
    form: VideoForm


class SpeechDecoded(Answer[NDArray[np.float32]], frozen=True):
    """Samples: float32 ``[n]``."""


class DecodeSpeech(Question[NDArray[np.float32]], frozen=True):
    """Return the samples of audio codes."""

    answer = SpeechDecoded
    codes: Sequence[Count]


class Speak(Numbered, frozen=True):
    """Answer with ``SpeechPart`` in turn, and ``SpeechEnded``: speak a piece of a text by the speech model.

    ``voice``: float32 samples, 24,000 a second; empty for none.
    """

    text: SpokenText
    temperature: Annotated[float, Meta(ge=0, le=10)]
    seed: Count | None = None
    voice: bytes = b""
    terms: Terms = msgspec.field(default_factory=Terms)


class Scored(Answer[Sequence[Logprobs]], frozen=True):
    """Log-probabilities of the tokens after the first, which has no prediction."""


class Score(Question[Sequence[Logprobs]], frozen=True):
    """Return the log-probabilities of a text's tokens, and of ``n_top`` alternatives each.

    ``adapters`` is as for ``Encode``. Requests with an equal ``cache_salt`` share the cached text.
    """

    answer = Scored
    tokens: Sequence[int]
    n_top: int = 0
    adapters: Mapping[str, float] | None = None
    cache_salt: str = ""
    terms: Terms = msgspec.field(default_factory=Terms)


class LayersRead(Answer[Sequence[NDArray[np.float32]]], frozen=True):
    """Rows of each text, float32 ``[n_tokens, n_layers, n]``."""


class ReadLayers(Question[Sequence[NDArray[np.float32]]], frozen=True):
    """Return the rows of ``layers``, all of them different, for each of ``texts``, given as token ids.

    ``adapters`` is as for ``Encode``.
    """

    answer = LayersRead
    texts: Sequence[Sequence[int]]
    layers: Annotated[Sequence[int | Name], Meta(min_length=1)]
    adapters: Mapping[str, float] | None = None
    terms: Terms = msgspec.field(default_factory=Terms)


class PromptSaved(Answer[Count], frozen=True):
    """The number of the prompt's first tokens whose cache is on disk."""


class SavePrompt(Question[int], frozen=True):
    """Write the cache of a prompt that was read to ``cache_saved`` or ``cache_disk``.

    ``adapters`` and ``cache_salt`` are those of the request that read it.
    """

    answer = PromptSaved
    tokens: Sequence[Token]
    adapters: Mapping[str, float] | None = None
    cache_salt: str = ""
    terms: Terms = msgspec.field(default_factory=Terms)


class AdaptersSet(Answer[list[Name]], frozen=True):
    """The names of those that are LoRA adapters, as in ``Facts``."""


class SetAdapters(Question[list[str]], frozen=True):
    """Let later requests use these adapters alone, by name."""

    answer = AdaptersSet
    adapters: Mapping[Name, AdapterOptions]


class Cancel(Numbered, frozen=True):
    """Cancel a request: a sequence ends at its current token, others with an error. Ended requests are ignored."""


class EndReasoning(Numbered, frozen=True):
    """End the reasoning of a sequence with a reasoning budget after its next token; others ignore it."""


class Inspected(Answer[Snapshot], frozen=True):
    """The state of the engine."""


class Inspect(Question[Snapshot], frozen=True):
    """Return the state of the engine."""

    answer = Inspected


class Close(EngineMessage, frozen=True):
    """Cancel everything and end."""


AnyQuestion = Encode | EncodeMedia | PlanVideo | DecodeSpeech | Score | ReadLayers | SavePrompt | SetAdapters | Inspect
Command = AnyQuestion | Add | ReleaseMedia | Speak | Cancel | EndReasoning | Close


def media_of(command: Command) -> list[Embeddings]:
    """Return the spans of embeddings of a command."""
    if isinstance(command, Encode):
        return [span for spans in command.media for span in spans]
    return list(command.request.media) if isinstance(command, Add) else []


# --- other events


class Accepted(Numbered, frozen=True):
    """A request is valid and waits.

    Sent only by engines that cannot raise errors in the sender: see ``EngineClient``.
    """


class Progress(Numbered, frozen=True):
    """The number of prompt tokens in the cache. The first one, ``n_cached``, is sent when reading begins."""

    n_read: Count
    n_prompt: Count
    n_cached: Count  # tokens that were cached before
    seconds: Seconds  # of reading


class Output(Numbered, frozen=True, gc=False):
    """Tokens of one step, with the text that each completes, and the requested log-probabilities."""

    tokens: Sequence[Token]
    texts: Sequence[str]
    logprobs: Sequence[Logprobs] | None = None


class Finished(LastEvent, frozen=True):
    """The last event of a successful sequence; ``text`` was held back until now.

    ``end``: the end token that the model chose, if the request asked for log-probabilities.
    """

    text: str
    reason: EngineFinishReason
    timings: Timings
    end: tuple[Token, Logprobs] | None = None


class Failed(LastEvent, frozen=True):
    """The last event of a failed sequence.

    A StopIteration becomes a RuntimeError, since raised in a client it would end its stream like a complete answer.
    """

    error: Exception

    def __post_init__(self) -> None:
        if isinstance(self.error, (StopIteration, StopAsyncIteration)):
            error = RuntimeError(f"{type(self.error).__name__} in a step of the engine, which is a defect of Pumice")
            error.__cause__ = self.error
            msgspec.structs.force_setattr(self, "error", error)


class SpeechPart(Numbered, frozen=True):
    """A part of the answer to ``Speak``: float32 ``[n]``."""

    samples: NDArray[np.float32]


class SpeechEnded(LastEvent, frozen=True):
    """The end of the answer to ``Speak``, with the number of frames."""

    n_frames: Count


AnyAnswer = (
    Encoded | MediaEncoded | VideoPlanned | SpeechDecoded | Scored | LayersRead | PromptSaved | AdaptersSet | Inspected
)
Event = AnyAnswer | Accepted | Progress | Output | Finished | Failed | SpeechPart | SpeechEnded
