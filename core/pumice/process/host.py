"""The far end of a link: an engine that gets commands from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pumice.engine.messages import Accepted, Add, Ask, Cancel, Encode, Event, Failed, Score
from pumice.model import Model

Write = Callable[[list[Event]], None]

_COMPILERS = 2  # threads


class EngineHost:
    """Gives a model's engine commands, and its events to ``write``, from the engine's thread and from who obeys.

    Requests with a grammar are made ready by threads of their own: compiling it keeps no other command waiting.
    """

    def __init__(self, model: Model, write: Write) -> None:
        self.model = model
        self._write = write
        self._compilers = ThreadPoolExecutor(_COMPILERS, "pumice-compiler")
        self._waiting: set[int] = set()  # ids of requests that wait for such a thread, or are made ready by one
        self._cancelled: set[int] = set()  # those of them that were cancelled meanwhile
        self._lock = threading.Lock()
        model.engine.emit = write

    def obey(self, command: Add | Encode | Score | Cancel | Ask) -> None:
        """Give the engine a command. One that is refused is answered, since it cannot raise over there."""
        if isinstance(command, Add) and command.request.grammar:
            with self._lock:
                self._waiting.update(command.ids)
            self._compilers.submit(self._add, command)
        elif not (isinstance(command, Cancel) and self._is_waiting(command.id)):
            self._obey(command)

    def _is_waiting(self, id: int) -> bool:
        """Whether a request is not the engine's yet; if so it is cancelled as soon as it is."""
        with self._lock:
            if id in self._waiting:
                self._cancelled.add(id)
            return id in self._waiting

    def _add(self, command: Add) -> None:
        """Give the engine a request, then cancel what of it was cancelled meanwhile."""
        self._obey(command)
        with self._lock:
            cancelled = self._cancelled.intersection(command.ids)
            self._cancelled -= cancelled
            self._waiting.difference_update(command.ids)
        for id in cancelled:
            self._obey(Cancel(id))

    def _obey(self, command: Add | Encode | Score | Cancel | Ask) -> None:
        try:
            self.model.engine.send(command)
            if isinstance(command, Add):
                self._write([Accepted(id) for id in command.ids])
        except Exception as error:
            ids = command.ids if isinstance(command, Add) else [command.id]
            self._write([Failed(id, error) for id in ids])
