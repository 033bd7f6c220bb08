"""The far end of a link: an engine that gets commands from elsewhere, and whose errors must survive the way back."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from pumice.engine.messages import Accepted, Add, Ask, Cancel, Encode, Event, Failed, Score
from pumice.errors import EngineError, PumiceError
from pumice.model import Model

Write = Callable[[list[Event]], None]


class EngineHost:
    """Gives a model's engine commands, and its events to ``write``, from the engine's thread and from who obeys."""

    def __init__(self, model: Model, write: Write) -> None:
        self.model = model
        self._write = write
        model.engine.emit = lambda events: write([_portable_event(event) for event in events])

    def obey(self, command: Add | Encode | Score | Cancel | Ask) -> None:
        """Give the engine a command. One that is refused is answered, since it cannot raise over there."""
        try:
            self.model.engine.send(command)
            if isinstance(command, Add):
                self._write([Accepted(id) for id in command.ids])
        except Exception as error:
            ids = command.ids if isinstance(command, Add) else [command.id]
            self._write([Failed(id, portable(error)) for id in ids])


def portable(error: Exception) -> Exception:
    """An error that pickles, and is one of Pumice's."""
    if isinstance(error, MemoryError):
        return EngineError("out of memory: give it a smaller n_ctx, n_parallel or model")
    if not isinstance(error, PumiceError):
        return EngineError(f"{type(error).__name__}: {error}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EngineError(str(error))
    return error


def _portable_event(event: Event) -> Event:
    return Failed(event.id, portable(event.error)) if isinstance(event, Failed) else event
