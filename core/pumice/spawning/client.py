"""Start children directly, or by the spawner, a process forked for that purpose before this one was confined.

Only the spawner may start programs. If it ends, its children continue, and no others can be started.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import IO, NamedTuple, cast

import msgspec

from pumice.errors import EngineError, PumiceError, class_named
from pumice.spawning import wire
from pumice.spawning.child import UNKNOWN, Child, end, is_stopped, popen
from pumice.spawning.fork import fork_helper
from pumice.spawning.prepared import PreparedChild
from pumice.spawning.server import serve

_ENDING, _POLL = 3.0, 0.01  # seconds to wait for the end of a spawner, and polling interval
_SECONDS = 60.0  # timeout of starting a child
_SEND_SECONDS = 10  # timeout of sending, after which the spawner counts as gone
_PIPE_BYTES = 1 << 15  # written to the pipe of a child that does not read yet
_GONE = "the process that starts engines and workers has ended: start the server again"

logger = logging.getLogger("pumice")

_spawner: Spawner | None = None
_prepared: PreparedChild | None = None


def prepare(kind: str) -> None:
    """Start a process that imports the modules of a kind of child, for ``start_ahead``. Call it before ``spawner``."""
    global _prepared
    if not (_prepared or _spawner):
        _prepared = PreparedChild.start(kind)


def discard_prepared() -> None:
    """End the prepared process, if it was not used."""
    global _prepared
    if _prepared:
        _prepared.discard()
        _prepared = None


def start(kind: str, order: bytes) -> Child:
    """Start a child of one of ``KINDS``. Raises OSError, and PumiceError if the order is refused."""
    if _spawner:
        return _spawner.start(kind, order)
    return cast(Child, popen(kind, order, subprocess.PIPE, subprocess.PIPE))


def start_ahead(kind: str, order: bytes, first: bytes) -> None:
    """Let the spawner start a child that ``claim`` returns later, with ``first`` in its standard input.

    Without a spawner, and for ``first`` that a pipe may not hold, nothing is started. Safe in a process that confines
    itself later: no thread is started.
    """
    if _spawner and len(first) <= _PIPE_BYTES:
        _spawner.start_ahead(kind, order, first)


def claim(kind: str, order: bytes) -> Child | None:
    """Return the child that ``start_ahead`` started by the same order, once; end another one of that kind.

    Raises OSError and PumiceError like ``start``.
    """
    return _spawner.claim(kind, order) if _spawner else None


def spawns() -> bool:
    """Return True if ``start`` uses a spawner."""
    return _spawner is not None


@contextlib.contextmanager
def spawner(begin: Callable[[], None] = lambda: None) -> Iterator[Spawner]:
    """Fork a spawner, which ``start`` uses within this context. At the end all of its children are killed.

    Call this in a process with one thread. ``begin`` is called in the forked process.
    """
    global _spawner
    descriptor = _prepared.descriptor if _prepared else None
    _spawner = Spawner(*fork_helper(partial(serve, begin=begin, prepared=descriptor)))
    if _prepared:
        _prepared.close_descriptor()  # the spawner has its own
    try:
        yield _spawner
    finally:
        current, _spawner = _spawner, None
        current.close()


class Spawner:
    """The connection to the spawner. Thread-safe."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self._channel = channel
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", _SEND_SECONDS, 0))
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards sending and the dictionaries
        self._waiting: dict[int, Future[int]] = {}
        self._children: dict[int, _Spawned] = {}
        self._reader: threading.Thread | None = None
        self._ahead: _Ahead | None = None
        self._gone = self._closing = False

    def start(self, kind: str, order: bytes) -> Child:
        """Start a child. Raises OSError, and PumiceError if the order is refused or the spawner has ended."""
        with self._lock:
            self._listen()
        return self._started(*self._begin(kind, order))

    def start_ahead(self, kind: str, order: bytes, first: bytes) -> None:
        """Begin to start a child for ``claim``, with ``first`` in its standard input. Raises EngineError."""
        if self._hand_over(kind, order, first):
            return
        child, started = self._begin(kind, order)
        child.stdin.write(first)
        self._ahead = _Ahead(kind, order, child, started)

    def _hand_over(self, kind: str, order: bytes, first: bytes) -> bool:
        """Let the prepared process become the child for ``claim``; return False if there is none."""
        global _prepared
        child, _prepared = _prepared, None
        if child is None:
            return False
        try:
            child.become(kind, order, first)
        except (OSError, PumiceError):  # it has ended, or loading raises the error again
            child.discard()
            return False
        child.end_it = partial(self._kill, child.number)
        started: Future[int] = Future()
        started.set_result(child.pid)
        self._ahead = _Ahead(kind, order, child, started)
        return True

    def _kill(self, number: int) -> None:
        with self._lock, contextlib.suppress(EngineError):
            self._send(wire.Kill(number, if_stopped=False))

    def claim(self, kind: str, order: bytes) -> Child | None:
        """Return the child that was started ahead by this order, or None. Raises like ``start``."""
        with self._lock:
            ahead = self._ahead
            if ahead is None or ahead.kind != kind:
                return None
            self._ahead = None
            self._listen()
        if ahead.order == order:
            return self._started(ahead.child, ahead.started)
        ahead.child.kill()
        self._forget(ahead.child)
        if isinstance(ahead.child, PreparedChild):
            end(cast(Child, ahead.child))  # of this process, which alone can wait for it
        return None

    def _begin(self, kind: str, order: bytes) -> tuple[_Spawned, Future[int]]:
        """Ask for a child; return it with the future of its process id."""
        far_in, stdin = os.pipe()
        stdout, far_out = os.pipe()
        child = _Spawned(self, next(self._numbers), os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0))
        started: Future[int] = Future()
        try:
            with self._lock:
                self._waiting[child.number], self._children[child.number] = started, child
                self._send(wire.Start(child.number, kind, order), (far_in, far_out))
        except BaseException:
            self._forget(child)
            raise
        finally:
            wire.close([far_in, far_out])
        return child, started

    def _started(self, child: _Spawned | PreparedChild, started: Future[int]) -> Child:
        """Return a child once it runs. Raises like ``start``."""
        try:
            child.pid = started.result(_SECONDS)
        except BaseException as error:
            self._forget(child)
            if isinstance(error, FutureTimeoutError):
                raise EngineError(
                    f"the process that starts engines did not respond within {_SECONDS:g} seconds"
                ) from None
            raise
        return cast(Child, child)

    def kill(self, child: _Spawned, if_stopped: bool) -> None:
        with self._lock, contextlib.suppress(EngineError):
            if child.number in self._children:
                self._send(wire.Kill(child.number, if_stopped))
                if not if_stopped and is_stopped(self.pid):  # it obeys if it continues
                    del self._children[child.number]
                    child.lose()
                    logger.error("process %d is not killed: the process that starts engines is stopped", child.pid)

    def close(self) -> None:
        """End the spawner and all of its children. One that is stopped, or hangs, may outlive this."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if is_stopped(self.pid) or not self._ends():
            with contextlib.suppress(OSError):  # a confined process may signal no other
                os.kill(self.pid, signal.SIGKILL)
                self._ends()
        if self._reader:
            self._reader.join(_ENDING)
        self._channel.close()

    def _ends(self) -> bool:
        """Wait some seconds for the end of the spawner; return True if it has ended."""
        with contextlib.suppress(ChildProcessError):
            for _ in range(int(_ENDING / _POLL)):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
                time.sleep(_POLL)
            return False
        return True

    def _forget(self, child: _Spawned | PreparedChild) -> None:
        with self._lock:
            self._waiting.pop(child.number, None)
            self._children.pop(child.number, None)
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()

    def _listen(self) -> None:
        """Start reading the spawner's messages with the first child: a process that confines itself has one thread."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._hear, name="pumice-spawner", daemon=True)
            self._reader.start()

    def _send(self, message: wire.SpawnMessage, pipes: tuple[int, ...] = ()) -> None:
        try:
            if self._gone:
                raise OSError
            wire.send(self._channel, message, pipes)
        except OSError:
            self._gone = True  # a part of a message may have been sent
            raise EngineError(_GONE) from None
        except OverflowError as error:
            raise EngineError(f"no process can be started: {error}") from None

    def _hear(self) -> None:
        try:
            while (received := wire.receive(self._channel, wire.TOLD)) is not None:
                message, pipes = received
                wire.close(pipes)
                self._take(message)
        except OSError:
            pass  # the spawner has ended
        except (OverflowError, msgspec.MsgspecError) as error:
            logger.error("the process that starts engines violated the protocol: %s", error)
        finally:
            self._lose()

    def _lose(self) -> None:
        """Fail everything that waits for a spawner that has ended."""
        with self._lock:
            self._gone = True
            waiting, self._waiting = self._waiting, {}
            children, self._children = self._children, {}
        for child in children.values():
            child.lose()
        for future in waiting.values():
            future.set_exception(EngineError(_GONE))
        if not self._closing:
            logger.error("%s; running engines continue", _GONE)

    def _take(self, report: wire.SpawnReport) -> None:
        with self._lock:
            waits = None if isinstance(report, wire.Ended) else self._waiting.pop(report.number, None)
            child = None if isinstance(report, wire.Started) else self._children.pop(report.number, None)
        if isinstance(report, wire.Ended) and child:
            child.status = report.status
            child.over.set()
        elif isinstance(report, wire.Started) and waits:
            waits.set_result(report.pid)
        elif isinstance(report, wire.NotStarted) and waits:
            waits.set_exception(_error_of(report))


def _error_of(report: wire.NotStarted) -> Exception:
    kind = class_named(report.kind) if report.kind else OSError
    try:
        error = kind(report.message) if kind else None
        str(error)  # raises if the message does not fit the class
    except (TypeError, AttributeError):
        error = None
    return error or EngineError(report.message)


class _Ahead(NamedTuple):
    """A child that was started before anything waits for it."""

    kind: str
    order: bytes
    child: _Spawned | PreparedChild
    started: Future[int]


class _Spawned:
    """A child of the spawner. ``over`` is set once its status is known, or ``lost`` with the spawner."""

    def __init__(self, owner: Spawner, number: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.number = number
        self.pid = 0
        self.stdin = stdin
        self.stdout = stdout
        self.status = UNKNOWN
        self.over = threading.Event()
        self.lost = False
        self._owner = owner

    def lose(self) -> None:
        """Stop waiting for a child whose end will not be told."""
        self.lost = True
        self.over.set()

    def poll(self) -> int | None:
        return self.status if self.over.is_set() and not self.lost else None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns at once for a lost child, whose input is closed or whose output has ended."""
        if not self.over.wait(timeout):
            raise subprocess.TimeoutExpired("a child", timeout or 0.0)
        return self.status

    def kill(self, if_stopped: bool = False) -> None:
        self._owner.kill(self, if_stopped)
