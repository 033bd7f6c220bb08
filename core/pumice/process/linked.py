"""The engine of a model that runs elsewhere: in another process, or on another machine."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pumice.architecture import MediaKind
from pumice.chat.mixed import PromptPart
from pumice.clients import REQUEST_CANCELLED, cancelled_request
from pumice.config import AdapterOptions, Config
from pumice.engine import EngineClient, Snapshot
from pumice.engine.client import EngineLink
from pumice.engine.media.encoders import no_projector, refusal
from pumice.engine.messages import (
    DecodeSpeech,
    EncodeMedia,
    Event,
    Facts,
    MediaValues,
    PlanVideo,
    SetAdapters,
    Speak,
)
from pumice.errors import RequestError
from pumice.gguf import GGUFFile
from pumice.grammar import shared_checker
from pumice.media.videos import VideoForm, VideoPlan
from pumice.model_files.opening import open_configured
from pumice.model_files.summary import Summary
from pumice.model_files.tokenizer import LazyTokenizer
from pumice.process.codec import Load
from pumice.process.engine import EngineProcess
from pumice.registry import get_registry
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import NO_VOCODER, check_codes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

#: Schedules a function where events are processed, for example ``loop.call_soon_threadsafe``.
Deliver = Callable[..., object]


class FarEngine(EngineLink, Protocol):
    """A link to an engine that loads asynchronously.

    Attributes:
        loaded: Facts about the model, once it is loaded.
        error: Reason of an unexpected end.
    """

    loaded: Future[Facts]
    error: Exception | None

    @property
    def keeps_media(self) -> bool:
        """True if one engine takes all commands, so that requests can name rows that it keeps."""


Connect = Callable[[Callable[[list[Event]], None], Callable[[Exception], None]], FarEngine]
"""Makes a link from two callbacks: one for lists of events, and one that is called once if the engine dies."""


class LinkedEngine:
    """The engine of a model that runs elsewhere: a ``ModelEngine``. Only its tokenizer is in this process.

    If it dies, streams and new requests raise EngineDiedError; load the model again.

    Attributes:
        link: The connection; ``link.pid`` and ``link.kill()`` of an engine in a process of its own.
    """

    def __init__(self, path: Path, config: Config, connect: Connect, deliver: Deliver | None = None) -> None:
        """Connect to an engine, and wait until it is loaded.

        Args:
            path: Path of the model's file, which is opened unless the engine sends its header.
            config: Merged settings.
            connect: Makes the connection.
            deliver: Schedules the processing of events; None: in the thread that receives them.

        Raises:
            PumiceError: The engine does not load.
        """
        self.config, self.registry, self.checker = config, get_registry(config), shared_checker()
        self.client = client = EngineClient(lambda command: link.send(command), confirms=True)
        hear = partial(_deliver, weakref.ref(client), deliver)
        with contextlib.ExitStack() as stack:
            self.link = link = connect(partial(hear, EngineClient.receive), partial(hear, EngineClient.fail))
            stack.callback(link.close)
            header = link.opened.result() if isinstance(link, EngineProcess) else None
            if header:
                metadata, self.summary = header.read()
                self.file = GGUFFile(path, metadata, {}, self.summary.n_bytes)
            else:
                self.file = stack.enter_context(open_configured(path, self.registry, config))
                self.summary = Summary.of(self.file)
            self.tokenizer = LazyTokenizer(self.file, self.registry)
            self.tokenizer.prepare()  # while the engine loads
            self.facts: Facts = link.loaded.result()
            self.media = _LinkedMedia(client, self.facts, link.keeps_media)
            self.speech = _LinkedSpeech(client, self.facts)
            self._finalizer = weakref.finalize(client, stack.pop_all().close)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def error(self) -> Exception | None:
        return self.link.error

    def snapshot(self) -> Snapshot:
        return self.client.inspect().result()

    def logits(self, *_: object) -> NDArray[np.float32]:
        raise _elsewhere("logits")

    def state(self, *_: object) -> bytes:
        raise _elsewhere("state")

    def restore(self, *_: object) -> int:
        raise _elsewhere("restore")

    def set_adapters(self, adapters: Mapping[str, AdapterOptions]) -> None:
        if not isinstance(self.link, EngineProcess):
            raise RequestError("adapters: an engine on other machines keeps those that it was loaded with")
        loras = self.client.ask(SetAdapters, dict(adapters)).result()
        self.config = replace(self.config, adapters=dict(adapters))
        self.facts = replace(self.facts, loras=loras)

    def close(self) -> None:
        self._finalizer()

    def kill(self) -> None:
        if isinstance(self.link, EngineProcess):
            self.link.kill()


def _elsewhere(name: str) -> RequestError:
    return RequestError(f"{name}: the engine is not in this process; load the model with pumice.load")


class _LinkedMedia:
    """Encodes media by an engine that runs elsewhere."""

    def __init__(self, client: EngineClient, facts: Facts, keeps_media: bool) -> None:
        self._client, self._facts, self._keeps = client, facts, keeps_media

    def check(self, kind: MediaKind) -> None:
        if kind not in self._facts.media:
            has_projector = self._facts.media or self._facts.speech
            reason = f"{refusal(kind)}: its projector has no such encoder" if has_projector else no_projector(kind)
            raise RequestError(reason)

    @property
    def sound_rate(self) -> int:
        return self._facts.sound_rate

    def encode(self, kind: MediaKind, values: MediaValues, form: VideoForm | None = None) -> Sequence[PromptPart]:
        return _wanted(self._client.ask(EncodeMedia.of, kind, values, form, self._keeps))

    def plan_video(self, form: VideoForm) -> VideoPlan:
        return _wanted(self._client.ask(PlanVideo, form))


class _LinkedSpeech:
    """Makes sound by an engine that runs elsewhere."""

    def __init__(self, client: EngineClient, facts: Facts) -> None:
        self._client, self._facts = client, facts

    @property
    def type(self) -> str:
        return self._facts.speech

    def check(self) -> None:
        if not (self._facts.audio_codes or self._facts.speech):
            raise RequestError(NO_VOCODER)

    def decode(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        self.check()
        check_codes(codes, self._facts.audio_codes)
        return self._client.ask(DecodeSpeech, codes)

    def open(self, command: Callable[[int], Speak]) -> SpeechStream:
        stream = SpeechStream()
        self._client.speak(command, stream)
        return stream


def process_engine(load: Load, progress: Callable[[int, int], None] | None, deliver: Deliver | None) -> LinkedEngine:
    """Return an engine in a process of its own: a crash or a lack of memory ends only that process.

    Raises PumiceError.
    """

    def connect(receive: Callable[[list[Event]], None], died: Callable[[Exception], None]) -> EngineProcess:
        return EngineProcess(load, receive, died, progress, caught_up)

    def caught_up(seconds: float) -> None:
        heard = threading.Event()
        if deliver:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                deliver(heard.set)
                heard.wait(seconds)

    return LinkedEngine(load.path, load.config, connect, deliver)


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
