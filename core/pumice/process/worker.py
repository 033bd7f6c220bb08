"""The engine's process: reads commands from standard input, and writes one message per step to standard output.

It ends with its input, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pumice import sandbox
from pumice.engine.messages import Close, Command, Event
from pumice.errors import BackendError, EngineError, OutOfMemoryError
from pumice.isolation.wire import take_standard_streams, write_frame
from pumice.local_engine import LocalEngine
from pumice.model_files.summary import Summary
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
    Opened,
    Report,
    encode_events,
    one_line,
    portable,
)
from pumice.process.engine_host import EngineHost
from pumice.process.frames import read_frames
from pumice.process.header import Header
from pumice.process_list import RunningModel, listed
from pumice.switching import COLLECTED, SWITCH_SECONDS
from pumice.wording import format_bytes

logger = logging.getLogger("pumice")

_OF_MEMORY = ("memory", "alloc", "start new thread")
_ALIVE_SECONDS = 2.0  # between two signs of life while loading
_CLOSE_SECONDS = 20.0  # for the engine to end its step and release its memory


def main() -> int:
    gc.disable()  # until the model is loaded: nearly all objects of a load stay
    sys.setswitchinterval(SWITCH_SECONDS)
    commands, events = take_standard_streams()
    lock = threading.Lock()

    def send(data: bytes) -> None:
        with lock, contextlib.suppress(ConnectionError):  # the parent was killed: commands end, and this process too
            write_frame(events, data)

    def write(report: Report) -> None:
        send(REPORTS.encode(report))

    def write_events(events: list[Event]) -> None:
        for data in encode_events(events):
            send(data)

    loaded: Future[EngineHost] = Future()
    telling = ThreadPoolExecutor(1, "pumice-header")  # the other end may be slow to read the header
    most = MAX_COMMAND_BYTES  # of a command, which may have the rows of images once the model is loaded
    coming = map(COMMANDS.decode, read_frames(commands, lambda: most))
    load = next(coming)
    if not isinstance(load, Load):
        return 1
    config = load.config
    _log_to(write, load.level)
    logger.info("the engine's process is confined by: %s", sandbox.in_force() or "nothing")
    threading.Thread(target=_obey, args=(loaded, coming), name="pumice-commands", daemon=True).start()
    try:
        with _signs_of_life(write):
            if config.memory_limit:
                sandbox.limit({"DATA": int(config.memory_limit * 2**30)})
            engine = LocalEngine(
                load.path,
                config,
                progress=lambda done, total: write(Loading(done, total)),
                opened=lambda file: telling.submit(write, Opened(Header.of(file.metadata, Summary.of(file)))),
            )
            engine.open_media()
            engine.thread.rehearse()
            engine.runner.placed.wait_until_prepared()
            telling.shutdown()
    except Exception as error:
        telling.shutdown()  # the error is the last message
        write(NotLoaded(_explained(error, config.memory_limit)))
        return 1
    gc.enable()
    gc.set_threshold(COLLECTED)
    gc.freeze()  # the process has one model; a full collection of garbage would stop its steps
    sandbox.seal()
    host, facts = EngineHost(engine, write_events), engine.facts
    with listed(RunningModel(load.command, load.name, facts.backends, facts.memory, facts.n_ctx)):
        most += facts.media_bytes  # before the other end may send such a command
        write(Loaded(facts))
        loaded.set_result(host)
        engine.thread.join()
    return 0 if engine.closed else 1


def _explained(error: Exception, limit: float) -> Exception:
    """Return an error of loading: OutOfMemoryError, with the limit if there is one, if memory ran out.

    Drivers and libraries report that in words alone.
    """
    told = portable(error)
    shown = str(told)
    if not (isinstance(told, (BackendError, EngineError)) and any(word in shown.lower() for word in _OF_MEMORY)):
        return error
    return OutOfMemoryError(f"{shown} (memory_limit is {format_bytes(int(limit * 2**30))})" if limit else shown)


def _obey(loaded: Future[EngineHost], coming: Iterator[Load | Command]) -> None:
    """Pass commands to the engine until they end. The process exits with this thread."""
    try:
        for command in coming:
            if isinstance(command, (Load, Close)):
                raise EngineError(f"{type(command).__name__} is not a command for a loaded engine")
            loaded.result().obey(command)
        if not loaded.done():
            os._exit(1)
        timer = threading.Timer(_CLOSE_SECONDS, os._exit, [1])  # in case a step never ends
        timer.daemon = True
        timer.start()
        loaded.result().engine.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


@contextlib.contextmanager
def _signs_of_life(write: Callable[[Report], None]) -> Iterator[None]:
    """Send signs of life during a long step of loading."""
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
    """Send log records and warnings to the other process."""

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
