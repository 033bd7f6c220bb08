"""Run an engine whose commands come from another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.clients import REQUEST_CANCELLED, check_wanted, failure_of
from pumice.engine.messages import (
    Accepted,
    AdaptersSet,
    Add,
    Cancel,
    Command,
    DecodeSpeech,
    Encode,
    EncodeMedia,
    Event,
    Failed,
    Numbered,
    PlanVideo,
    ReleaseMedia,
    Request,
    SetAdapters,
    Speak,
    SpeechDecoded,
    SpeechEnded,
    SpeechPart,
    VideoPlanned,
)
from pumice.errors import RequestError
from pumice.local_engine import LocalEngine
from pumice.process.kept_media import KeptMediaRows

T = TypeVar("T")
Write = Callable[[list[Event]], None]

ENCODERS = 4  # threads that encode media: one prepares an image while another's is computed, or they share a step
_COMPILERS = 2  # threads that compile grammars, tokenize long predictions, and hear voices
_LONG_PREDICTION = 4096  # characters, which take about a millisecond to tokenize


class EngineHost:
    """Passes commands to an engine of this process, and its events to ``write``, from several threads.

    Grammars of requests are compiled, long predictions tokenized, and voices heard in separate threads, so that other
    commands do not wait.
    """

    def __init__(self, engine: LocalEngine, write: Write) -> None:
        self.engine = engine
        self._write = write
        self._compilers = ThreadPoolExecutor(_COMPILERS, "pumice-compiler")
        self._encoder = ThreadPoolExecutor(ENCODERS, "pumice-media")
        self._kept = KeptMediaRows()
        self._media: dict[int, Future[None]] = {}  # images and sounds not yet encoded; cancelled with their requests
        self._speech: dict[int, Future[Any]] = {}  # not yet decoded or spoken
        self._waiting: set[int] = set()  # ids of requests that are still prepared in a separate thread
        self._cancelled: set[int] = set()  # ids of those that were cancelled meanwhile
        self._lock = threading.Lock()
        engine.thread.emit = write

    def obey(self, command: Command) -> None:
        """Pass a command to the engine. Errors are sent as events."""
        if isinstance(command, (EncodeMedia, PlanVideo)):
            self._media[command.id] = Future()
            self._encoder.submit(self._encode_media, command)
        elif isinstance(command, ReleaseMedia):
            self._kept.release(command.id)
        elif isinstance(command, (Add, Encode)):
            self._fill(command)
        elif isinstance(command, SetAdapters):
            self._compilers.submit(self._set_adapters, command)
        elif isinstance(command, DecodeSpeech):
            decoding = partial(self.engine.speech.decode, command.codes)
            self._sound(command.id, decoding, lambda samples: SpeechDecoded(command.id, samples))
        elif isinstance(command, Speak):
            self._prepare_beside(command)
        elif isinstance(command, Cancel) and (speech := self._speech.get(command.id)):
            speech.cancel()
        elif isinstance(command, Cancel) and (cancelled := self._media.get(command.id)):
            cancelled.cancel()
        elif not (isinstance(command, Cancel) and self._is_waiting(command.id)):
            self._obey(command)

    def _fill(self, command: Add | Encode) -> None:
        """Pass a request to the engine with the rows that it names, now, before these are released."""
        try:
            filled = self._kept.fill(command)
        except RequestError as error:
            self._write([Failed(id, error) for id in _ids(command)])
            return
        if isinstance(filled, Add) and _is_slow(filled.request):
            self._prepare_beside(filled)
        else:
            self._obey(filled)

    def _set_adapters(self, command: SetAdapters) -> None:
        """Read adapters and compile programs beside the commands that follow."""
        try:
            self.engine.set_adapters(command.adapters)
            self._write([AdaptersSet(command.id, self.engine.loras)])
        except Exception as error:
            self._write([Failed(command.id, error)])

    def _encode_media(self, command: EncodeMedia | PlanVideo) -> None:
        """Encode an image, a sound or a video beside the engine's steps, and send what stands for it."""
        REQUEST_CANCELLED.set(self._media[command.id])
        try:
            check_wanted()
            self._write([self._encoded(command)])
        except Exception as error:
            self._write([Failed(command.id, error)])
        finally:
            del self._media[command.id]

    def _encoded(self, command: EncodeMedia | PlanVideo) -> Event:
        if isinstance(command, PlanVideo):
            return VideoPlanned(command.id, self.engine.media.plan_video(command.form))
        return self._kept.answer(command, self.engine.media.encode(command.kind, command.values, command.form))

    def _sound(self, id: int, begin: Callable[[], Future[T]], answer: Callable[[T], Event]) -> None:
        """Make sound beside the engine's steps, and send the answer made of the result, or its error."""

        def tell(done: Future[T]) -> None:
            self._speech.pop(id, None)
            error = failure_of(done)
            self._write([Failed(id, error) if error else answer(done.result())])

        try:
            sound = begin()
        except Exception as error:
            self._write([Failed(id, error)])
            return
        self._speech[id] = sound
        sound.add_done_callback(tell)

    def _write_part(self, id: int, samples: NDArray[np.float32]) -> None:
        self._write([SpeechPart(id, samples)])

    def _is_waiting(self, id: int) -> bool:
        """Return True if a request is still prepared in a separate thread; it is then cancelled once it is not."""
        with self._lock:
            if id in self._waiting:
                self._cancelled.add(id)
            return id in self._waiting

    def _prepare_beside(self, command: Add | Speak) -> None:
        """Pass a request to the engine beside the commands that follow."""
        with self._lock:
            self._waiting.update(_ids(command))
        self._compilers.submit(self._prepare, command)

    def _prepare(self, command: Add | Speak) -> None:
        """Pass a request to the engine, and cancel it if it was cancelled meanwhile."""
        if isinstance(command, Speak):
            speaking = partial(self.engine.speech.speak, command, partial(self._write_part, command.id))
            self._sound(command.id, speaking, lambda n_frames: SpeechEnded(command.id, n_frames))
        else:
            self._obey(command)
        with self._lock:
            cancelled = self._cancelled.intersection(_ids(command))
            self._cancelled -= cancelled
            self._waiting.difference_update(_ids(command))
        for id in cancelled:
            self.obey(Cancel(id))

    def _obey(self, command: Command) -> None:
        try:
            self.engine.thread.send(command)
            if isinstance(command, Add):
                self._write([Accepted(id) for id in command.ids])
        except Exception as error:
            self._write([Failed(id, error) for id in _ids(command)])


def _ids(command: Command) -> Sequence[int]:
    if isinstance(command, Add):
        return command.ids
    return [command.id] if isinstance(command, Numbered) else []


def _is_slow(request: Request) -> bool:
    """Return True if other commands should not wait until a request is prepared."""
    return request.grammar is not None or len(request.prediction or "") > _LONG_PREDICTION
