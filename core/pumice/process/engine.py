"""Start an engine's process, send it commands, read its messages, and notice its end."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from io import BufferedReader, RawIOBase
from typing import IO, cast

from pumice.engine.messages import Command, Event, Facts
from pumice.errors import EngineDiedError, EngineError, EngineKilledError, ModelClosedError
from pumice.process.awaited import Awaited
from pumice.process.codec import (
    COMMANDS,
    REPORTS,
    Alive,
    Load,
    Loaded,
    Loading,
    Logged,
    NotLoaded,
    Opened,
    Report,
    StepEvents,
    encode_command,
    one_line,
)
from pumice.process.frames import FrameSender, frame, read_frames, widen
from pumice.process.header import Header
from pumice.spawning import claim, describe_status, end, start, start_ahead

_STOPPED_SECONDS = 1.0  # after closing, a stopped process is killed
_CLOSE_SECONDS = 5.0  # after closing, the process is killed
# A loading engine is killed after _SILENCE intervals without a message. A jump of the clock, as after the machine's
# sleep, counts as one interval.
_SILENCE = 12
_SILENCE_SECONDS = 10.0
_AHEAD = 256  # unprocessed messages after which reading pauses
_AHEAD_SECONDS = 10.0  # maximum pause

logger = logging.getLogger("pumice")


def start_engine_ahead(load: Load) -> None:
    """Start the process of an engine that an ``EngineProcess`` of the same command will use, if there is a spawner."""
    order = COMMANDS.encode(load)
    start_ahead("engine", order, frame(order))


class EngineProcess:
    """An engine in a process of its own, which is not trusted: it is killed if it violates the protocol.

    Args:
        receive: called with the events of each step, in the thread that reads them.
        died: called once if the process ends without being closed; ``loaded`` then fails, too, unless it is done.
        caught_up: waits until the events passed to ``receive`` were processed, or the given seconds are over. It is
            called regularly, so that an engine that floods its pipe does not fill the memory of this process.
    """

    def __init__(
        self,
        load: Load,
        receive: Callable[[list[Event]], None],
        died: Callable[[Exception], None],
        progress: Callable[[int, int], None] | None = None,
        caught_up: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.opened: Future[Header | None] = Future()  # the header of the model; None if the process sends none
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # the reason of its end
        self._receive = receive
        self._died = died
        self._progress = progress
        self._caught_up = caught_up
        self._model = load.name
        self._awaited = Awaited()
        self._closing = False
        self._heard = threading.Event()
        first = COMMANDS.encode(load)
        ahead = claim("engine", first)
        self._child = ahead or start("engine", first)
        for pipe in (self._child.stdin, self._child.stdout):
            widen(pipe)
        self._commands = FrameSender(self._child.stdin)
        if not ahead:
            self._commands.send(first)
        for run in (self._commands.run, partial(self._read, self._child.stdout)):
            threading.Thread(target=run, name="pumice-engine-pipe", daemon=True).start()
        threading.Thread(target=self._watch_loading, name="pumice-engine-watch", daemon=True).start()

    keeps_media = True

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, command: Command) -> None:
        """Send a command without waiting.

        Raises EngineDiedError, ModelClosedError, or RequestError if it cannot be sent.
        """
        if self._closing:
            raise ModelClosedError("the model is closed")
        if self.error:
            raise self.error
        facts = self._awaited.facts
        encoded = encode_command(command, facts.media_bytes if facts else 0)
        self._awaited.add(command)
        self._commands.send(encoded)

    def close(self) -> None:
        """Stop the engine and wait for its end. Active requests are cancelled, and its memory is released."""
        self._closing = True
        self._commands.close()
        try:
            self._child.wait(_STOPPED_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill(if_stopped=True)
        try:
            self._child.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._child)

    def kill(self) -> None:
        """Kill the process."""
        end(self._child)

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            with BufferedReader(cast(RawIOBase, pipe)) as reports:  # one system call per message
                for number, data in enumerate(read_frames(reports, lambda: self._awaited.max_bytes), 1):
                    self._heard.set()
                    self._take(REPORTS.decode(data))
                    if number % _AHEAD == 0:
                        self._caught_up(_AHEAD_SECONDS)
        except Exception as error:
            reason = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
            self.error = EngineError(f"the engine's process was killed, since it violated the protocol: {reason}")
            self._child.kill()
        status = self._child.wait()
        self._commands.close()
        if self._closing:
            self.error = ModelClosedError("the model is closed")
        else:
            self.error = self.error or _death(status)
        for future in (self.opened, self.loaded):
            if not future.done():
                future.set_exception(self.error)
        self._heard.set()
        self._died(self.error)

    def _watch_loading(self) -> None:
        """Kill a process that stops or hangs while loading; later the server checks that it is alive."""
        n_silent = 0
        while not self.loaded.done():
            n_silent = 0 if self._heard.wait(_SILENCE_SECONDS) else n_silent + 1
            self._heard.clear()
            if n_silent == _SILENCE and not self.loaded.done():
                seconds = _SILENCE * _SILENCE_SECONDS
                self.error = EngineError(f"the engine's process gave no sign of life for {seconds:g} seconds")
                self._child.kill()

    def _take(self, report: Report) -> None:
        """Process a message. Raises EngineError if it is unexpected."""
        if isinstance(report, Logged):
            logger.log(report.level, "%s", one_line(report.message), extra={"model": self._model})
            return
        if isinstance(report, StepEvents) == (self._awaited.facts is None) or self.error:
            raise EngineError(f"{type(report).__name__} at the wrong time")
        if isinstance(report, StepEvents):
            self._receive(self._awaited.check(report.events))
        elif isinstance(report, Loading):
            if self._progress:
                self._progress(report.done, report.total)
        elif isinstance(report, Opened) and not self.opened.done():
            self.opened.set_result(report.header)
        elif isinstance(report, Loaded):
            self._awaited.facts = report.facts
            if not self.opened.done():
                self.opened.set_result(None)
            self.loaded.set_result(report.facts)
        elif isinstance(report, NotLoaded):
            self.error = report.error
        elif not isinstance(report, Alive):
            raise EngineError(f"unexpected message {type(report).__name__}")


def _death(status: int) -> EngineDiedError:
    """Return the error for the status of an ended process."""
    if status >= 0:
        return EngineDiedError(f"the engine's process ended with {describe_status(status)}")
    name = describe_status(status)
    if name == "SIGKILL":
        return EngineKilledError("the engine's process was ended by SIGKILL; was there too little memory?")
    if name == "SIGBUS":
        return EngineDiedError("the engine's process was ended by SIGBUS; was the model's file cut short while in use?")
    return EngineDiedError(f"the engine's process was ended by {name}")
