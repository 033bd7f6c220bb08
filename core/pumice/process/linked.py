"""A model whose engine is at the other end of a link: in another process, on another machine."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.client import EngineLink
from pumice.engine.messages import Event, Facts
from pumice.frontend import Frontend
from pumice.gguf import GGUFFile
from pumice.grammar import shared_checker
from pumice.opening import open_model
from pumice.process.header import Header
from pumice.registry import get_registry

#: Has a function called with arguments, where events are to be heard: ``loop.call_soon_threadsafe`` for example.
Deliver = Callable[..., object]


class FarEngine(EngineLink, Protocol):
    """A link to an engine that is loaded in its own time: ``loaded``; ``error`` says why it ended by itself."""

    loaded: Future[Facts]
    error: Exception | None


Connect = Callable[[Callable[[list[Event]], None], Callable[[Exception], None]], FarEngine]
"""Makes a link, given what gets the events, a list of them at a time, and what is called once if the engine dies."""


class LinkedModel(Frontend):
    """As ``Model``, but its engine ends alone; here is only the tokenizer.

    Its streams then raise EngineDiedError, and so does whoever asks after; load it again. ``path`` is the model's file
    here, which is opened unless the engine tells its header. ``deliver``: how events reach those who listen; None: in
    the thread that receives them.
    """

    def __init__(self, path: Path, config: Config, connect: Connect, deliver: Deliver | None = None) -> None:
        client = EngineClient(lambda command: link.send(command), confirms=True)
        hear = partial(_deliver, weakref.ref(client), deliver)
        with contextlib.ExitStack() as stack:
            registry = get_registry(config)
            link = connect(partial(hear, EngineClient.receive), partial(hear, EngineClient.fail))
            stack.callback(link.close)
            facts, header = link.loaded.result(), self._header()
            self._told = header
            if header:
                metadata, self.__dict__["summary"] = header.read()
                file = GGUFFile(path, metadata, {}, self.summary.n_bytes)
            else:
                file = stack.enter_context(open_model(path, registry))
            super().__init__(file, config, registry, client, facts)
            self.link = link
            self._checker = shared_checker()
            self._finalizer = weakref.finalize(client, stack.pop_all().close)

    @cached_property
    def loras(self) -> list[str]:
        return self._told.loras if self._told else super().loras

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def _header(self) -> Header | None:
        """What the engine told of the model's file; None: it is read here."""
        return None

    @property
    def error(self) -> Exception | None:
        return self.link.error

    def close(self) -> None:
        self._finalizer()


def _deliver(
    client: weakref.ref[EngineClient],
    deliver: Deliver | None,
    method: Callable[[EngineClient, object], None],
    what: list[Event] | Exception,
) -> None:
    """Have a client hear what came; one that nobody uses any more hears nothing, nor does one whose loop is closed."""
    listening = client()
    if listening is None:
        return
    if deliver is None:
        method(listening, what)
        return
    with contextlib.suppress(RuntimeError):  # of call_soon_threadsafe
        deliver(method, listening, what)
