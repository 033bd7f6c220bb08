"""The client of an engine: sends commands, and passes each event to its requester."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pumice.clients import CLIENT
from pumice.engine.messages import (
    Add,
    Cancel,
    Command,
    DecodeSpeech,
    Encode,
    Encoded,
    EncodeImage,
    EncodeSound,
    EncodeVideo,
    EndReasoning,
    Event,
    Failed,
    Inspect,
    Inspected,
    LastEvent,
    Logprobs,
    MediaEncoded,
    MediaPart,
    PlanVideo,
    Pooling,
    PromptSaved,
    ReleaseMedia,
    Request,
    SavePrompt,
    Score,
    Scored,
    Snapshot,
    Span,
    Speak,
    SpeechDecoded,
    SpeechEnded,
    SpeechPart,
    VideoPlanned,
)
from pumice.errors import EngineDiedError, EngineError, ModelClosedError
from pumice.media_encoder import KeptMedia
from pumice.speech.stream import SpeechStream
from pumice.videos import VideoForm, VideoPlan

T = TypeVar("T")

Listener = Callable[[Event], None]
Vectors = Sequence[NDArray[np.float32]]


class EngineLink(Protocol):
    """A connection to an engine, such as an ``EngineThread`` or ``EngineProcess``; passes events to a function."""

    def send(self, command: Command) -> None:
        """Send a command. Raises ModelClosedError and EngineDiedError; RequestError, unless it confirms."""

    def close(self) -> None:
        """Cancel all active requests, release all resources, and return when that is done."""


class EngineClient:
    """Sends commands to an engine by ``send``, and takes its events by ``receive``.

    In one process ``send`` is that of an ``EngineThread``, which raises if a command is refused. For another process it
    writes to a pipe, and the engine ``confirms`` each request by ``Accepted`` or ``Failed``.
    """

    def __init__(self, send: Callable[[Command], None], confirms: bool = False) -> None:
        self._send = send
        self.confirms = confirms
        self._listeners: dict[int, Listener] = {}
        self._named: dict[int, Sequence[KeptMedia]] = {}  # kept media by requests that have not ended
        self._ids = itertools.count()

    def add(self, request: Request, *listeners: Listener) -> list[int]:
        """Start a generation and return the ids; each of the ``request.n`` completions has a listener.

        Listeners are called with every event, in the receiving thread, and must be quick.
        """
        return self._submit(lambda ids: Add(ids, request, CLIENT.get()), listeners, request.media)

    def cancel(self, id: int) -> None:
        """Cancel a sequence; its listener still gets ``Finished``, unless the engine is closed or dead."""
        with contextlib.suppress(ModelClosedError, EngineDiedError):
            self._send(Cancel(id))

    def end_reasoning(self, id: int) -> None:
        """End the reasoning of a sequence whose request has a reasoning budget."""
        with contextlib.suppress(ModelClosedError, EngineDiedError):
            self._send(EndReasoning(id))

    def drop(self, id: int) -> None:
        """Cancel a sequence without listeners, and forget it."""
        if self._listeners.pop(id, None):
            self.cancel(id)

    def encode(
        self,
        texts: Sequence[Sequence[int]],
        pooling: Pooling,
        scores: bool = False,
        adapter_scales: Sequence[float] = (),
        media: Sequence[Sequence[Span]] = (),
        priority: int = 0,
    ) -> Future[Vectors]:
        """Encode texts, given as token ids, to vectors, like ``Encode``. Cancelling the future cancels the work."""
        return self._future(
            lambda id: Encode(id, texts, pooling, scores, adapter_scales, media, priority, CLIENT.get()),
            lambda event: cast(Encoded, event).values,
            [span for spans in media for span in spans],
        )

    def encode_image(self, pixels: NDArray[np.uint8], keep: bool = False) -> Future[Sequence[MediaPart]]:
        """Return what stands for an image ``[height, width, 3]`` in a prompt, like ``EncodeImage``.

        Kept rows are released once nothing refers to the ``media`` of the parts any more.
        """
        height, width, _ = pixels.shape
        return self._future(lambda id: EncodeImage(id, height, width, pixels.tobytes(), keep), self._media_parts)

    def encode_sound(self, samples: NDArray[np.float32], keep: bool = False) -> Future[Sequence[MediaPart]]:
        """Return what stands for a sound ``[n]`` in a prompt, like ``EncodeSound``; see ``encode_image``."""
        return self._future(lambda id: EncodeSound(id, samples.tobytes(), keep), self._media_parts)

    def plan_video(self, form: VideoForm) -> Future[VideoPlan]:
        """Return which frames of a video the model sees, like ``PlanVideo``."""
        return self._future(lambda id: PlanVideo(id, form), lambda event: cast(VideoPlanned, event).plan)

    def encode_video(
        self, form: VideoForm, frames: NDArray[np.uint8], keep: bool = False
    ) -> Future[Sequence[MediaPart]]:
        """Return what stands for a video in a prompt, from its frames, like ``EncodeVideo``; see ``encode_image``."""
        _, height, width, _ = frames.shape
        return self._future(lambda id: EncodeVideo(id, form, height, width, frames.tobytes(), keep), self._media_parts)

    def _media_parts(self, event: Event) -> Sequence[MediaPart]:
        """Return the parts of encoded media, whose kept rows share an object that releases them at its end."""
        parts = cast(MediaEncoded, event).parts
        if not any(part.kept for part in parts):
            return parts
        media = KeptMedia(event.id)
        weakref.finalize(media, _release, weakref.ref(self), event.id).atexit = False
        return [replace(part, kept=part.kept and replace(part.kept, media=media)) for part in parts]

    def decode_speech(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        """Return the samples of audio codes, like ``DecodeSpeech``. The future can be cancelled."""
        return self._future(lambda id: DecodeSpeech(id, codes), lambda event: cast(SpeechDecoded, event).samples)

    def speak(self, command: Callable[[int], Speak], stream: SpeechStream) -> None:
        """Speak a piece of a text; ``command`` makes the message of an id. Closing the stream ends the speech."""

        def listen(event: Event) -> None:
            if isinstance(event, SpeechPart):
                stream.put(event.samples)
            elif isinstance(event, SpeechEnded):
                stream.end(event.n_frames)
            elif isinstance(event, Failed):
                stream.fail(event.error)

        (id,) = self._submit(lambda ids: command(ids[0]), [listen])
        stream.cancel = lambda: self.cancel(id)

    def score(
        self,
        tokens: Sequence[int],
        n_top: int,
        adapter_scales: Sequence[float] = (),
        cache_salt: str = "",
        priority: int = 0,
    ) -> Future[Sequence[Logprobs]]:
        """Return the log-probabilities of a text's tokens after the first, like ``Score``.

        The future can be cancelled.
        """
        return self._future(
            lambda id: Score(id, tokens, n_top, adapter_scales, cache_salt, priority, CLIENT.get()),
            lambda event: cast(Scored, event).logprobs,
        )

    def save_prompt(
        self, tokens: Sequence[int], adapter_scales: Sequence[float] = (), cache_salt: str = ""
    ) -> Future[int]:
        """Write the cache of a prompt to disk, like ``SavePrompt``; the result is the number of its tokens there."""
        return self._future(
            lambda id: SavePrompt(id, tokens, adapter_scales, cache_salt),
            lambda event: cast(PromptSaved, event).n_tokens,
        )

    def _future(
        self, command: Callable[[int], Command], result: Callable[[Event], T], media: Sequence[Span] = ()
    ) -> Future[T]:
        """Return the result of a command that is answered by one event. ``media``: those that it names."""
        future: Future[T] = Future()

        def listen(event: Event) -> None:
            with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
                if isinstance(event, Failed):
                    future.set_exception(event.error)
                else:
                    future.set_result(result(event))

        (id,) = self._submit(lambda ids: command(ids[0]), [listen], media)
        future.add_done_callback(lambda done: self.drop(id) if done.cancelled() else None)
        return future

    def snapshot(self, timeout: float | None = None) -> Snapshot:
        """Return the state of the engine. Raises TimeoutError if no answer arrives within ``timeout`` seconds."""
        return self.ask().result(timeout)

    def ask(self) -> Future[Snapshot]:
        """Like ``snapshot``, but return a future."""
        return self._future(Inspect, lambda event: cast(Inspected, event).snapshot)

    def receive(self, events: Iterable[Event]) -> None:
        """Pass events to their requesters."""
        for event in events:
            last = isinstance(event, LastEvent)
            listener = self._listeners.pop(event.id, None) if last else self._listeners.get(event.id)
            if last:
                self._named.pop(event.id, None)
            if listener:
                listener(event)
            elif isinstance(event, MediaEncoded):  # nobody waits for it any more
                self._media_parts(event)

    def end(self, error: Exception) -> None:
        """Fail all requests with an error."""
        ids = list(self._listeners)
        self.fail(error)
        for id in ids:
            self.cancel(id)

    def fail(self, error: Exception) -> None:
        """Handle the end of the engine: fail everything that waits for it."""
        self.receive([Failed(id, error) for id in list(self._listeners)])

    def _submit(
        self,
        command: Callable[[Sequence[int]], Command],
        listeners: Sequence[Listener],
        media: Sequence[Span] = (),
    ) -> list[int]:
        """Send a command, and return its ids.

        Media that it names are released after its end: not every link keeps the order of commands.
        """
        ids = [next(self._ids) for _ in listeners]
        self._listeners.update(zip(ids, listeners, strict=True))
        if named := [span.kept.media for span in media if span.kept]:
            self._named.update(dict.fromkeys(ids, named))
        try:
            self._send(command(ids))
        except BaseException:
            for id in ids:
                self._listeners.pop(id, None)
                self._named.pop(id, None)
            raise
        return ids


def _release(client: weakref.ref[EngineClient], id: int) -> None:
    """Release the rows of media; an engine that has ended has none."""
    sender = client()
    if sender is not None:
        with contextlib.suppress(ModelClosedError, EngineError):
            sender._send(ReleaseMedia(id))
