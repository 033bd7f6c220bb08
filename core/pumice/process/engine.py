"""The near end of an engine's process: it is started, commands are sent, its messages are read, its end is seen."""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO

from pumice.engine.messages import Close, Command, Event, Facts
from pumice.errors import EngineDiedError, EngineError, ModelClosedError
from pumice.process.frames import FrameWriter, Load, Loaded, Loading, Logged, NotLoaded, read_frames, unpack
from pumice.sandbox import Policy, launch

WORKER = "pumice.process.worker"
_CLOSE_SECONDS = 30.0  # then it is killed

logger = logging.getLogger("pumice")


class EngineProcess:
    """An engine in a process of its own. ``receive`` gets the events of each step in the thread that reads them.

    ``policy`` confines the process; None: nothing does.

    ``died`` is called once if it ends and nobody closed it; ``loaded`` then fails too, if it was not there yet.
    """

    def __init__(
        self,
        load: Load,
        receive: Callable[[list[Event]], None],
        died: Callable[[Exception], None],
        progress: Callable[[int, int], None] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # why it ended
        self._receive = receive
        self._died = died
        self._progress = progress
        self._closing = False
        self._commands: queue.SimpleQueue[Load | Command] = queue.SimpleQueue()
        self._child = subprocess.Popen(
            **launch(WORKER, policy=policy)._asdict(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for the program that started it
        )
        self._commands.put(load)
        for run, pipe in ((self._write, self._child.stdin), (self._read, self._child.stdout)):
            threading.Thread(target=run, args=[pipe], name="pumice-engine-pipe", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, command: Command) -> None:
        """Never waits. Raises EngineDiedError, or ModelClosedError."""
        if self._closing:
            raise ModelClosedError("the model is closed")
        if self.error:
            raise self.error
        self._commands.put(command)

    def close(self) -> None:
        """End it: what it has in hand ends as cancelled, and its memory is given back. Waits for that."""
        self._closing = True
        self._commands.put(Close())
        try:
            self._child.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._child.kill()
        self._child.wait()

    def _write(self, pipe: IO[bytes]) -> None:
        write = FrameWriter(pipe)
        with contextlib.suppress(OSError), pipe:  # the end of the process is told by who reads
            while not isinstance(command := self._commands.get(), Close):
                write(command)

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            with pipe:
                for message in read_frames(pipe):
                    self._take(message)
        except Exception as error:
            self.error = EngineError(f"the engine's messages cannot be read: {type(error).__name__}: {error}")
            self._child.kill()
        status = self._child.wait()
        self._commands.put(Close())
        if self._closing:
            self.error = ModelClosedError("the model is closed")
        else:
            self.error = self.error or EngineDiedError(_describe(status))
        if not self.loaded.done():
            self.loaded.set_exception(self.error)
        self._died(self.error)

    def _take(self, message: object) -> None:
        if isinstance(message, list):
            self._receive(unpack(message))
        elif isinstance(message, Loading):
            if self._progress:
                self._progress(message.done, message.total)
        elif isinstance(message, Loaded):
            self.loaded.set_result(message.facts)
        elif isinstance(message, NotLoaded):
            self.error = message.error
        elif isinstance(message, Logged):
            logger.log(message.level, message.message)


def _describe(status: int) -> str:
    """Why a process ended, from the status that it gave."""
    if status >= 0:
        return f"the engine's process ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = "; was there too little memory?" if name == "SIGKILL" else ""
    return f"the engine's process was ended by {name}{hint}"
