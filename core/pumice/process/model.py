"""A model whose engine is in a process of its own."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pumice.chat.isolated import shared_renderer
from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.messages import Event
from pumice.frontend import Frontend
from pumice.opening import open_model
from pumice.process.engine import EngineProcess
from pumice.process.frames import Load
from pumice.registry import get_registry

#: Has a function called with arguments, where events are to be heard: ``loop.call_soon_threadsafe`` for example.
Deliver = Callable[..., object]


class ProcessModel(Frontend):
    """As ``Model``, but a crash, or the lack of memory, ends the engine's process alone, or that of chat templates.

    Its streams then raise EngineDiedError, and so does whoever asks after; load it again. ``name`` and ``command`` are
    what ``pumice ps`` shows. ``deliver``: how events reach those who listen; None: in the thread that reads them.
    """

    def __init__(
        self,
        path: Path,
        config: Config,
        progress: Callable[[int, int], None] | None = None,
        deliver: Deliver | None = None,
        name: str = "",
        command: str = "",
    ) -> None:
        load = Load(path, config, name or str(path), command, logging.getLogger("pumice").getEffectiveLevel())
        client = EngineClient(lambda command: process.send(command), confirms=True)
        hear = partial(_deliver, weakref.ref(client), deliver or _call)
        with ExitStack() as stack:
            registry = get_registry(config)
            file = stack.enter_context(open_model(path, registry))
            process = EngineProcess(
                load,
                partial(hear, EngineClient.receive),
                partial(hear, EngineClient.fail),
                progress,
            )
            stack.callback(process.close)
            super().__init__(file, config, registry, client, process.loaded.result())
            self.process = process
            self._renderer = shared_renderer()
            self._finalizer = weakref.finalize(client, stack.pop_all().close)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def error(self) -> Exception | None:
        return self.process.error

    def close(self) -> None:
        self._finalizer()


def _call(function: Callable[..., None], *arguments: object) -> None:
    function(*arguments)


def _deliver(
    client: weakref.ref[EngineClient],
    deliver: Deliver,
    method: Callable[[EngineClient, object], None],
    what: list[Event] | Exception,
) -> None:
    """Have a client hear what came; one that nobody uses any more hears nothing."""
    listening = client()
    if listening is not None:
        deliver(method, listening, what)
