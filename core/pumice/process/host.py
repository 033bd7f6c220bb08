"""The far end of a link: an engine that gets commands from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from pumice.engine.messages import Accepted, Add, Ask, Cancel, Encode, Event, Failed, Score
from pumice.model import Model

Write = Callable[[list[Event]], None]


class EngineHost:
    """Gives a model's engine commands, and its events to ``write``, from the engine's thread and from who obeys."""

    def __init__(self, model: Model, write: Write) -> None:
        self.model = model
        self._write = write
        model.engine.emit = write

    def obey(self, command: Add | Encode | Score | Cancel | Ask) -> None:
        """Give the engine a command. One that is refused is answered, since it cannot raise over there."""
        try:
            self.model.engine.send(command)
            if isinstance(command, Add):
                self._write([Accepted(id) for id in command.ids])
        except Exception as error:
            ids = command.ids if isinstance(command, Add) else [command.id]
            self._write([Failed(id, error) for id in ids])
