"""The client of an engine: sends commands, and passes each event to its requester."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

import msgspec

from pumice.embeddings import Embeddings, KeptMedia
from pumice.engine.messages import (
    Add,
    Answer,
    Cancel,
    Command,
    EndReasoning,
    Event,
    Failed,
    Inspect,
    LastEvent,
    MediaEncoded,
    Question,
    ReleaseMedia,
    Request,
    Snapshot,
    Speak,
    SpeechEnded,
    SpeechPart,
    media_of,
)
from pumice.errors import EngineDiedError, EngineError, ModelClosedError
from pumice.speech.stream import SpeechStream

P = ParamSpec("P")
V = TypeVar("V")

Listener = Callable[[Event], None]


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
        return self._submit(lambda ids: Add(ids, request), listeners)

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

    def ask(self, question: Callable[Concatenate[int, P], Question[V]], *args: P.args, **kwargs: P.kwargs) -> Future[V]:
        """Return the answer to a question, which is made of its id and these arguments: ``ask(Score, tokens)``.

        Cancelling the future cancels the work. Kept rows are released once nothing refers to their ``media`` any more.
        """
        future: Future[V] = Future()

        def listen(event: Event) -> None:
            with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
                if isinstance(event, Failed):
                    future.set_exception(event.error)
                else:
                    future.set_result(cast(Answer[V], event).value)

        (id,) = self._submit(lambda ids: cast(Command, question(ids[0], *args, **kwargs)), [listen])
        future.add_done_callback(lambda done: self.drop(id) if done.cancelled() else None)
        return future

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

    def inspect(self) -> Future[Snapshot]:
        """Return the state of the engine."""
        return self.ask(Inspect)

    def receive(self, events: Iterable[Event]) -> None:
        """Pass events to their requesters."""
        for event in events:
            if isinstance(event, MediaEncoded):
                event = self._kept(event)
            last = isinstance(event, LastEvent)
            listener = self._listeners.pop(event.id, None) if last else self._listeners.get(event.id)
            if last:
                self._named.pop(event.id, None)
            if listener:
                listener(event)

    def _kept(self, event: MediaEncoded) -> MediaEncoded:
        """Return encoded media whose kept rows share an object that releases them at its end."""
        if not any(isinstance(part, Embeddings) and part.kept for part in event.value):
            return event
        media = KeptMedia(event.id)
        weakref.finalize(media, _release, weakref.ref(self), event.id).atexit = False
        parts = [
            replace(part, kept=replace(part.kept, media=media)) if isinstance(part, Embeddings) and part.kept else part
            for part in event.value
        ]
        return msgspec.structs.replace(event, value=parts)

    def end(self, error: Exception) -> None:
        """Fail all requests with an error."""
        ids = list(self._listeners)
        self.fail(error)
        for id in ids:
            self.cancel(id)

    def fail(self, error: Exception) -> None:
        """Handle the end of the engine: fail everything that waits for it."""
        self.receive([Failed(id, error) for id in list(self._listeners)])

    def _submit(self, command: Callable[[Sequence[int]], Command], listeners: Sequence[Listener]) -> list[int]:
        """Send a command, and return its ids.

        Media that it names are released after its end: not every link keeps the order of commands.
        """
        ids = [next(self._ids) for _ in listeners]
        self._listeners.update(zip(ids, listeners, strict=True))
        try:
            made = command(ids)
            if named := [span.kept.media for span in media_of(made) if span.kept]:
                self._named.update(dict.fromkeys(ids, named))
            self._send(made)
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
