"""The engine's process: commands come in by standard input, events go out by standard output, one message a step.

It ends when its input does, so that it never outlives who started it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from pumice import sandbox
from pumice.engine.messages import Close, Command, Event
from pumice.errors import EngineError
from pumice.isolation.wire import take_standard_streams
from pumice.model import Model
from pumice.process.codec import (
    COMMANDS,
    MAX_COMMAND_BYTES,
    REPORTS,
    Alive,
    Load,
    Loaded,
    Loading,
    Logged,
    NotLoaded,
    Report,
    encode_events,
    one_line,
    portable,
)
from pumice.process.frames import FrameWriter, read_frames
from pumice.process.header import Header
from pumice.process.host import EngineHost
from pumice.running import Running, told

logger = logging.getLogger("pumice")

_OF_MEMORY = ("memory", "alloc", "start new thread")
_ALIVE_SECONDS = 2.0  # between two signs of life while the model is loaded
_CLOSE_SECONDS = 20.0  # for the engine to end its step and give everything back


def main() -> int:
    commands, events = take_standard_streams()
    frames = FrameWriter(events)

    def write(report: Report) -> None:
        frames(REPORTS.encode(report))

    def write_events(events: list[Event]) -> None:
        for data in encode_events(events):
            frames(data)

    coming = map(COMMANDS.decode, read_frames(commands, lambda: MAX_COMMAND_BYTES))
    load = next(coming)
    if not isinstance(load, Load):
        return 1
    _log_to(write, load.level)
    logger.info("the engine's process is confined by: %s", sandbox.in_force() or "nothing")
    loaded: Future[EngineHost] = Future()
    threading.Thread(target=_obey, args=(loaded, coming), name="pumice-commands", daemon=True).start()
    try:
        with _signs_of_life(write):
            if load.config.memory_limit:
                sandbox.limit({"DATA": int(load.config.memory_limit * 2**30)})
            model = Model(load.path, load.config, lambda done, total: write(Loading(done, total)))
            header = Header.of(model.metadata, model.summary, model.loras)
    except Exception as error:
        write(NotLoaded(_explained(error, load.config.memory_limit)))
        return 1
    sandbox.seal()
    host = EngineHost(model, write_events)
    with told(Running(load.command, load.name, model.backends, model.memory, model.n_ctx)):
        write(Loaded(model.facts, header))
        loaded.set_result(host)
        model.engine.join()
    return 0 if model.closed else 1


def _explained(error: Exception, limit: float) -> Exception:
    """An error of loading; one of memory tells of the limit, if there is one."""
    shown = str(portable(error))
    if not limit or not any(word in shown.lower() for word in _OF_MEMORY):
        return error
    return EngineError(f"{shown} (memory_limit is {limit:g} GiB)")


def _obey(loaded: Future[EngineHost], coming: Iterator[Load | Command]) -> None:
    """Give the engine commands until there are no more. Without this thread the process is of no use."""
    try:
        for command in coming:
            if isinstance(command, (Load, Close)):
                raise EngineError(f"{type(command).__name__} is no command of a loaded engine")
            loaded.result().obey(command)
        if not loaded.done():
            os._exit(1)
        timer = threading.Timer(_CLOSE_SECONDS, os._exit, [1])  # a step that never ends
        timer.daemon = True
        timer.start()
        loaded.result().model.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


@contextlib.contextmanager
def _signs_of_life(write: Callable[[Report], None]) -> Iterator[None]:
    """Say now and then that this process runs, however long one step of loading takes."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(_ALIVE_SECONDS):
            write(Alive())

    thread = threading.Thread(target=say, name="pumice-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _log_to(write: Callable[[Report], None], level: int) -> None:
    """What is logged and warned of here is logged over there."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write(Logged(record.levelno, one_line(self.format(record))))

    logger = logging.getLogger("pumice")
    logger.setLevel(level)
    logger.propagate = False
    logger.handlers = [Handler()]
    warnings.showwarning = lambda message, *_: write(Logged(logging.WARNING, one_line(str(message))))


if __name__ == "__main__":
    sys.exit(main())
