"""A model whose engine runs in a process of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from pumice.config import Config
from pumice.engine.messages import Event
from pumice.process.codec import make_load
from pumice.process.engine import EngineProcess
from pumice.process.header import Header
from pumice.process.linked import Deliver, LinkedModel


class ProcessModel(LinkedModel):
    """Like ``Model``, but a crash or a lack of memory ends only the engine's process.

    ``name`` and ``command`` are shown by ``pumice ps``; ``process`` is the engine's process.
    """

    process: EngineProcess

    def __init__(
        self,
        path: Path,
        config: Config,
        progress: Callable[[int, int], None] | None = None,
        deliver: Deliver | None = None,
        name: str = "",
        command: str = "",
    ) -> None:
        load = make_load(path, config, name, command)

        def connect(receive: Callable[[list[Event]], None], died: Callable[[Exception], None]) -> EngineProcess:
            self.process = EngineProcess(load, receive, died, progress, caught_up)
            return self.process

        def caught_up(seconds: float) -> None:
            heard = threading.Event()
            if deliver:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    deliver(heard.set)
                    heard.wait(seconds)

        super().__init__(path, config, connect, deliver)

    @cached_property
    def loras(self) -> list[str]:
        return self.process.loras if self.process.opened.result() else super().loras

    def _header(self) -> Header | None:
        return self.process.opened.result()
