"""One end of the way to an engine: commands are sent, and each event finds who asked for it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pumice.engine.messages import (
    Add,
    Answer,
    Ask,
    Cancel,
    Command,
    Encode,
    Encoded,
    Event,
    Failed,
    Finished,
    Logprobs,
    Pooling,
    Request,
    Score,
    Scored,
    Snapshot,
)
from pumice.errors import EngineDiedError, ModelClosedError

T = TypeVar("T")

Listener = Callable[[Event], None]
Encodings = Sequence[NDArray[np.float32]]


class EngineLink(Protocol):
    """An engine, wherever it is: an ``EngineThread``, an ``EngineProcess``. It gives events to a function."""

    def send(self, command: Command) -> None:
        """Give it a command. Raises ModelClosedError and EngineDiedError; RequestError, unless it confirms."""

    def close(self) -> None:
        """End all that it has in hand as cancelled, and give back what it ran on; return when that is done."""


class EngineClient:
    """Speaks to an engine through ``send``, which takes a command; its answers come in through ``receive``.

    In one process ``send`` is that of an ``EngineThread``, which raises where a command is refused. To another process
    it writes to a pipe; the engine ``confirms`` then: ``Accepted`` comes back for a request, or ``Failed``.
    """

    def __init__(self, send: Callable[[Command], None], confirms: bool = False) -> None:
        self._send = send
        self.confirms = confirms
        self._listeners: dict[int, Listener] = {}
        self._ids = itertools.count()

    def add(self, request: Request, *listeners: Listener) -> list[int]:
        """Generate; the ids. Each of the completions, ``request.n``, has a listener.

        It is called with every event, from the thread that receives; it must be quick.
        """
        return self._submit(lambda ids: Add(ids, request), listeners)

    def cancel(self, id: int) -> None:
        """End a sequence; its listener gets ``Finished`` still. One that is closed or dead has ended them all."""
        with contextlib.suppress(ModelClosedError, EngineDiedError):
            self._send(Cancel(id))

    def drop(self, id: int) -> None:
        """Nobody listens any more: end the sequence, and forget it."""
        if self._listeners.pop(id, None):
            self.cancel(id)

    def encode(
        self,
        texts: Sequence[Sequence[int]],
        pooling: Pooling,
        scores: bool = False,
        adapter_scales: Sequence[float] = (),
    ) -> Future[Encodings]:
        """What texts, token ids, are in one vector each; as ``Encode``. Cancelling the future ends the work."""
        return self._future(
            lambda id: Encode(id, texts, pooling, scores, adapter_scales), lambda event: cast(Encoded, event).values
        )

    def score(
        self, tokens: Sequence[int], n_top: int, adapter_scales: Sequence[float] = (), cache_salt: str = ""
    ) -> Future[Sequence[Logprobs]]:
        """Log-probabilities of a text's tokens after the first; as ``Score``. Cancelling the future ends the work."""
        return self._future(
            lambda id: Score(id, tokens, n_top, adapter_scales, cache_salt), lambda event: cast(Scored, event).logprobs
        )

    def _future(self, command: Callable[[int], Command], result: Callable[[Event], T]) -> Future[T]:
        """The result of a command that is answered by one event."""
        future: Future[T] = Future()

        def listen(event: Event) -> None:
            with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
                if isinstance(event, Failed):
                    future.set_exception(event.error)
                else:
                    future.set_result(result(event))

        (id,) = self._submit(lambda ids: command(ids[0]), [listen])
        future.add_done_callback(lambda done: self.drop(id) if done.cancelled() else None)
        return future

    def snapshot(self, timeout: float | None = None) -> Snapshot:
        """What the engine has in hand. Raises TimeoutError where no answer comes within ``timeout`` seconds."""
        return self.ask().result(timeout)

    def ask(self) -> Future[Snapshot]:
        """As ``snapshot``, for who waits in another way."""
        future: Future[Snapshot] = Future()

        def listen(event: Event) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(event, Answer):
                future.set_result(event.snapshot)
            elif isinstance(event, Failed):
                future.set_exception(event.error)

        self._submit(lambda ids: Ask(ids[0]), [listen])
        return future

    def receive(self, events: Iterable[Event]) -> None:
        """Hand events on to who asked."""
        for event in events:
            last = isinstance(event, (Finished, Failed, Answer, Encoded, Scored))
            listener = self._listeners.pop(event.id, None) if last else self._listeners.get(event.id)
            if listener:
                listener(event)

    def end(self, error: Exception) -> None:
        """End all that was asked for by an error."""
        ids = list(self._listeners)
        self.fail(error)
        for id in ids:
            self.cancel(id)

    def fail(self, error: Exception) -> None:
        """The engine is gone: tell everybody who waits."""
        self.receive([Failed(id, error) for id in list(self._listeners)])

    def _submit(self, command: Callable[[Sequence[int]], Command], listeners: Sequence[Listener]) -> list[int]:
        ids = [next(self._ids) for _ in listeners]
        self._listeners.update(zip(ids, listeners, strict=True))
        try:
            self._send(command(ids))
        except BaseException:
            for id in ids:
                self._listeners.pop(id, None)
            raise
        return ids
