"""The part of a model that needs no engine: metadata, tokens, configuration."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pumice.architecture import MediaKind
from pumice.audio import Audio, SoundBudget, samples_of
from pumice.chat.mixed import Media, PlacedEmbeddings, PromptPart, encode_media, tokenize_parts, within
from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.media.encoded_media import MAX_BYTES, EncodedMedia
from pumice.engine.messages import Facts, Span
from pumice.engine.requests.arguments import token_ids
from pumice.errors import RequestError, TokenizerError
from pumice.gguf import GGUFFile
from pumice.grammar import GrammarChecker
from pumice.images import MAX_IMAGES, pixels_of
from pumice.media_encoder import Embeddings, KeptRows
from pumice.model_files.opening import is_lora
from pumice.model_files.summary import Summary
from pumice.registry import Registry
from pumice.sampler import parameters
from pumice.tokenizers import Tokenizer, from_metadata
from pumice.videos import Video, VideoForm, VideoPlan, form_of, frames_of
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
SHORT = "a"  # text


class Base(ABC):
    """Base of models: metadata and tokens, with a client of the engine."""

    def __init__(
        self,
        file: GGUFFile,
        config: Config,
        registry: Registry,
        client: EngineClient,
        facts: Facts,
        tokenizer: LazyTokenizer | None = None,
    ) -> None:
        """Initialize the model.

        Args:
            file: Open file of the model.
            config: Merged settings.
            registry: Registered plugins.
            client: Connection to the engine.
            facts: What the engine runs.
            tokenizer: Tokenizer of the file, if it was prepared already.

        Raises:
            RequestError: ``config.chat_template`` names no template.
        """
        if config.chat_template:
            from pumice.chat.template import check_chosen

            check_chosen(file.metadata, config.chat_template)
        self.config = config
        self.client = client
        self.facts = facts
        self._file = file
        self._registry = registry
        self._load_tokenizer = tokenizer or LazyTokenizer(file, registry)
        self._encoded = EncodedMedia(max(MAX_BYTES, facts.media_bytes))
        self._formats = registry.chat_formats
        self._samplers = registry.samplers
        self._checker = GrammarChecker()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the GGUF file."""
        return self._file.metadata

    @cached_property
    def summary(self) -> Summary:
        """Summary of the file's header, with numbers of parameters and bytes, quantization type and metadata."""
        return Summary.of(self._file)

    @property
    def n_ctx(self) -> int:
        """Context in tokens."""
        return self.facts.n_ctx

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a model cannot be pickled or copied, since it holds memory of devices; load {str(self._file.path)!r} in "
            "the other process, or share this one over HTTP with `pumice serve`"
        )

    @property
    def backends(self) -> list[str]:
        """Names of the backends that compute the model, the one with the most operations first."""
        return self.facts.backends

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose: weights, kv_cache, activations."""
        return self.facts.memory

    @property
    def n_vocab(self) -> int:
        """Number of logits of a token."""
        return self.facts.n_vocab

    @cached_property
    def sampling(self) -> Mapping[str, Any]:
        """Default parameters of the sampler chain: those of the configuration, else of the samplers."""
        chain = [self._samplers[name] for name in self.config.samplers]
        return {**parameters.defaults(chain), **self.config.sampling}

    @cached_property
    def loras(self) -> list[str]:
        """Names of the LoRA adapters; the other adapters are control vectors."""
        return [name for name, options in self.config.adapters.items() if is_lora(options.file)]

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True after ``close``."""

    def _encode_media(self, media: Media, salt: str, together: SoundBudget) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image or a sound in a prompt.

        ``together`` counts the sounds of the request.

        Raises RequestError for a file that cannot be read, and a model without a projector for it.
        """
        if isinstance(media, Audio):
            self.check_takes("audio")
            together.check_bytes(media)
            rate = self.sound_rate
            return self._encoded.get(
                media.at(rate),
                lambda content: together.checked(samples_of(content, rate), rate),
                self.encode_samples,
                salt,
            )
        if isinstance(media, Video):
            self.check_takes("video")
            salt = f"{salt}\0{media.rate}"  # decides which frames the model sees
            return self._encoded.get(
                media, partial(self._decode_video, media.rate), lambda video: self.encode_frames(*video), salt
            )
        self.check_takes("image")
        return self._encoded.get(media, pixels_of, self.encode_pixels, salt)

    def _decode_video(
        self, rate: float | None, content: bytes | NDArray[np.uint8]
    ) -> tuple[VideoForm, NDArray[np.uint8]]:
        form = form_of(content, rate)
        return form, frames_of(content, form, self.plan_video(form))

    def _read_mixed(self, parts: Sequence[str | Media], salt: str = "") -> tuple[list[int], list[Span]]:
        """Return the token ids of texts, images and sounds in order, with those of media left open, and the media.

        Raises RequestError for media that cannot be read, or do not fit.
        """
        if sum(not isinstance(part, str) for part in parts) > MAX_IMAGES:
            raise RequestError(f"the prompt has more than {MAX_IMAGES} images, sounds and videos")
        self.check_fits([part for part in parts if isinstance(part, str)])
        tokenizer = self.tokenizer
        ends = [tokenizer.eos] if tokenizer.add_eos and tokenizer.eos is not None else []

        def first(text: str) -> list[int]:
            ids = tokenizer.tokenize(text)
            return ids[: len(ids) - len(ends)]

        encoded = within(
            encode_media(parts, partial(self._encode_media, salt=salt, together=SoundBudget())), self.n_ctx
        )
        ids, placed = tokenize_parts(encoded, first, tokenizer.tokenize_following)
        return ids + ends, spans_of(placed)

    @abstractmethod
    def check_takes(self, kind: MediaKind) -> None:
        """Raise RequestError for a model that takes no images or no sound, before any is decoded."""

    @abstractmethod
    def encode_pixels(self, pixels: NDArray[np.uint8]) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image ``[height, width, 3]`` in a prompt.

        Raises PromptTooLongError if they have more rows than the context.
        """

    @abstractmethod
    def plan_video(self, form: VideoForm) -> VideoPlan:
        """Return which frames of a video the model sees.

        Raises PromptTooLongError if their embeddings have more rows than the context.
        """

    @abstractmethod
    def encode_frames(self, form: VideoForm, frames: NDArray[np.uint8]) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for a video in a prompt, from its planned frames."""

    @property
    def sound_rate(self) -> int:
        """Samples a second of the sounds that the projector encodes."""
        return self.facts.sound_rate

    @abstractmethod
    def encode_samples(self, samples: NDArray[np.float32]) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for a sound ``[n]`` of ``sound_rate`` in a prompt.

        Raises PromptTooLongError if they have more rows than the context.
        """

    @property
    def error(self) -> Exception | None:
        """Error that ended the engine; None while it runs, and after ``close``."""
        return None

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model. Raises TokenizerError if the file has no known one."""
        return self._load_tokenizer()

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: Text to tokenize.
            add_special: Add the tokens that begin and end a text (BOS, EOS), if the model uses them.
            parse_special: Read the spelling of a control token, such as ``<|im_end|>``, as that token.
        """
        if not isinstance(text, str):
            raise RequestError(f"tokenize takes a string, not {show_python(text)}")
        return self.tokenizer.tokenize(text, add_special, parse_special)

    def check_fits(self, texts: Sequence[str]) -> None:
        """Raise PromptTooLongError if the context cannot hold the texts together, judged by their lengths alone."""
        self.tokenizer.check_fits(texts, self.n_ctx)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; control tokens have none."""
        return self.tokenizer.detokenize(token_ids(ids, "detokenize takes a list of token ids"))

    @contextlib.contextmanager
    def _waiting(self, future: Future[T]) -> Iterator[T]:
        """Yield the result of a future, and cancel the future on leaving."""
        try:
            yield future.result()
        finally:
            future.cancel()


def spans_of(placed: PlacedEmbeddings) -> list[Span]:
    """Return the spans of embeddings at positions."""
    return [_span(start, part) for start, part in placed]


def _span(start: int, part: Embeddings) -> Span:
    form = part.grid, part.kind, part.times
    if isinstance(part.rows, KeptRows):
        return Span(start, None, *form, kept=part.rows)
    return Span(start, part.rows, *form, part.key)


class LazyTokenizer:
    """Tokenizer of a file, created on first use."""

    def __init__(self, file: GGUFFile, registry: Registry) -> None:
        self._file = file
        self._registry = registry

    def __call__(self) -> Tokenizer:
        """Return the tokenizer. Raises TokenizerError if the file has no known one."""
        return self._made

    def or_none(self) -> Tokenizer | None:
        """Return the tokenizer, or None if the file has no known one: such a model works with token ids."""
        try:
            return self._made
        except TokenizerError:
            return None

    def begin(self) -> None:
        """Build what reads and writes short texts. Requests raise its errors."""
        with contextlib.suppress(Exception):
            self._made.tokenize(SHORT)

    def prepare(self) -> None:
        """Build what splits texts into tokens: half a second for large vocabularies. Requests raise its errors."""
        with contextlib.suppress(Exception):
            self._made.prepare()

    @cached_property
    def _made(self) -> Tokenizer:
        return from_metadata(self._file.metadata, self._registry.tokenizers, self._registry.pre_tokenizers)
