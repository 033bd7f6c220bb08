"""A model whose engine runs elsewhere: in another process, or on another machine."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pumice.architecture import MediaKind
from pumice.chat.mixed import PromptPart
from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.client import EngineLink
from pumice.engine.media.projector_parts import no_projector, refusal
from pumice.engine.messages import Event, Facts, MediaPart, Speak
from pumice.errors import RequestError
from pumice.frontend import Frontend, LazyTokenizer
from pumice.gguf import GGUFFile
from pumice.grammar import shared_checker
from pumice.images import REQUEST_CANCELLED, cancelled_request
from pumice.media_encoder import Embeddings
from pumice.model_files.opening import open_configured
from pumice.process.header import Header
from pumice.registry import get_registry
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import NO_VOCODER, check_codes
from pumice.videos import VideoForm, VideoPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

#: Schedules a function where events are processed, for example ``loop.call_soon_threadsafe``.
Deliver = Callable[..., object]


class FarEngine(EngineLink, Protocol):
    """A link to an engine that loads asynchronously (``loaded``); ``error`` is the reason of an unexpected end."""

    loaded: Future[Facts]
    error: Exception | None

    @property
    def keeps_media(self) -> bool:
        """True if one engine takes all commands, so that requests can name rows that it keeps."""


Connect = Callable[[Callable[[list[Event]], None], Callable[[Exception], None]], FarEngine]
"""Makes a link from two callbacks: one for lists of events, and one that is called once if the engine dies."""


class LinkedModel(Frontend):
    """Like ``Model``, but the engine runs elsewhere, and only the tokenizer in this process.

    If the engine dies, streams and new requests raise EngineDiedError; load the model again.

    Args:
        path: path of the model's file, which is opened unless the engine sends its header.
        deliver: schedules the processing of events; None: in the thread that receives them.
    """

    def __init__(self, path: Path, config: Config, connect: Connect, deliver: Deliver | None = None) -> None:
        client = EngineClient(lambda command: link.send(command), confirms=True)
        hear = partial(_deliver, weakref.ref(client), deliver)
        with contextlib.ExitStack() as stack:
            registry = get_registry(config)
            link = connect(partial(hear, EngineClient.receive), partial(hear, EngineClient.fail))
            stack.callback(link.close)
            header = self._header()
            tokenizer = None
            if header:
                metadata, self.__dict__["summary"] = header.read()
                file = GGUFFile(path, metadata, {}, self.summary.n_bytes)
                tokenizer = LazyTokenizer(file, registry)
                tokenizer.prepare()  # while the engine loads
            facts = link.loaded.result()
            if not header:
                file = stack.enter_context(open_configured(path, registry, config))
            super().__init__(file, config, registry, client, facts, tokenizer)
            self.link = link
            self._keeps_media = link.keeps_media
            self._checker = shared_checker()
            self._finalizer = weakref.finalize(client, stack.pop_all().close)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def check_takes(self, kind: MediaKind) -> None:
        if kind not in self.facts.media:
            has_projector = self.facts.media or self.facts.speech
            reason = f"{refusal(kind)}: its projector has no such encoder" if has_projector else no_projector(kind)
            raise RequestError(reason)

    def encode_pixels(self, pixels: NDArray[np.uint8]) -> Sequence[PromptPart]:
        return _prompt_parts(_wanted(self.client.encode_image(pixels, self._keeps_media)), "image")

    def encode_samples(self, samples: NDArray[np.float32]) -> Sequence[PromptPart]:
        return _prompt_parts(_wanted(self.client.encode_sound(samples, self._keeps_media)), "audio")

    @property
    def speech_type(self) -> str:
        return self.facts.speech

    def open_speech(self, command: Callable[[int], Speak]) -> SpeechStream:
        stream = SpeechStream()
        self.client.speak(command, stream)
        return stream

    def plan_video(self, form: VideoForm) -> VideoPlan:
        return _wanted(self.client.plan_video(form))

    def encode_frames(self, form: VideoForm, frames: NDArray[np.uint8]) -> Sequence[PromptPart]:
        return _prompt_parts(_wanted(self.client.encode_video(form, frames, self._keeps_media)), "video")

    def check_speaks(self) -> None:
        if not (self.facts.audio_codes or self.facts.speech):
            raise RequestError(NO_VOCODER)

    def decode_speech(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        self.check_speaks()
        check_codes(codes, self.facts.audio_codes)
        return self.client.decode_speech(codes)

    def _header(self) -> Header | None:
        """Return the header that the engine sends before it is loaded; None if the file is to be read here."""
        return None

    @property
    def error(self) -> Exception | None:
        return self.link.error

    def close(self) -> None:
        self._finalizer()


def _wanted(future: Future[T]) -> T:
    """Return the result of a future, which is cancelled with the request of this context.

    Raises RequestError if the request was cancelled.
    """
    request = REQUEST_CANCELLED.get()
    if request is not None:
        request.add_done_callback(lambda _: future.cancel())
    try:
        return future.result()
    except CancelledError:
        raise cancelled_request() from None


def _prompt_parts(encoded: Sequence[MediaPart], kind: MediaKind) -> list[PromptPart]:
    parts: list[PromptPart] = []
    for part in encoded:
        parts += [part.text] if part.text else []
        rows = part.kept if part.rows is None else part.rows
        parts += [] if rows is None else [Embeddings(rows, part.grid, kind, part.times, block=part.block)]
    return parts


def _deliver(
    client: weakref.ref[EngineClient],
    deliver: Deliver | None,
    method: Callable[[EngineClient, object], None],
    what: list[Event] | Exception,
) -> None:
    """Deliver an event or error to a client, unless it is no longer used or its event loop is closed."""
    listening = client()
    if listening is None:
        return
    if deliver is None:
        method(listening, what)
        return
    with contextlib.suppress(RuntimeError):  # call_soon_threadsafe of a closed loop
        deliver(method, listening, what)
