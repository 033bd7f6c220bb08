"""Starting children: directly, or through the spawner, a process that was forked for that before this one was confined.

The spawner alone may start programs. If it ends, what it started goes on, and nothing else is started.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import IO, cast

import msgspec

from pumice.errors import EngineError, class_named
from pumice.spawning import wire
from pumice.spawning.child import UNKNOWN, Child, popen
from pumice.spawning.server import serve

_ENDING, _POLL = 3.0, 0.01  # seconds that a spawner has to end, and between two looks at it
_SECONDS = 60.0  # to start a child; a spawner that takes longer hangs
_GONE = "the process that starts engines and workers has ended: start the server again"

logger = logging.getLogger("pumice")

_spawner: Spawner | None = None


def start(kind: str, order: bytes) -> Child:
    """Start a child of one of ``KINDS``. Raises OSError, and PumiceError for an order that is refused."""
    if _spawner:
        return _spawner.start(kind, order)
    return cast(Child, popen(kind, order, subprocess.PIPE, subprocess.PIPE))


def spawns() -> bool:
    """Whether ``start`` uses a spawner."""
    return _spawner is not None


@contextlib.contextmanager
def spawner() -> Iterator[Spawner]:
    """Fork a spawner, which ``start`` uses meanwhile. At the end all that it started is killed.

    It has what this process has imported, so that it costs neither time nor memory. Call this before there is another
    thread.
    """
    global _spawner
    near, far = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        near.close()
        serve(far)
    far.close()
    _spawner = Spawner(near, pid)
    try:
        yield _spawner
    finally:
        made, _spawner = _spawner, None
        made.close()


class Spawner:
    """The near end. Any thread may use it."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self._channel = channel
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # of what is sent, and of the dictionaries
        self._waiting: dict[int, Future[int]] = {}
        self._children: dict[int, _Spawned] = {}
        self._reader: threading.Thread | None = None
        self._gone = self._closing = False

    def start(self, kind: str, order: bytes) -> Child:
        """Raises OSError, and PumiceError for an order that is refused, or a spawner that is gone."""
        far_in, stdin = os.pipe()
        stdout, far_out = os.pipe()
        child = _Spawned(self, next(self._numbers), os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0))
        started: Future[int] = Future()
        try:
            with self._lock:
                self._listen()
                self._waiting[child.number], self._children[child.number] = started, child
                self._send(wire.Start(child.number, kind, order), (far_in, far_out))
            child.pid = started.result(_SECONDS)
        except BaseException as error:
            self._forget(child)
            if isinstance(error, FutureTimeoutError):
                raise EngineError(f"the process that starts engines gave nothing in {_SECONDS:g} seconds") from None
            raise
        finally:
            wire.close([far_in, far_out])
        return child

    def kill(self, child: _Spawned, if_stopped: bool) -> None:
        with self._lock, contextlib.suppress(EngineError):
            if child.number in self._children:
                self._send(wire.Kill(child.number, if_stopped))

    def close(self) -> None:
        """End the spawner, and all that it started."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if not self._ends():  # it is stopped, or hangs
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self._ends()
        if self._reader:
            self._reader.join()
        self._channel.close()

    def _ends(self) -> bool:
        """Wait until the spawner's process has ended, for some seconds."""
        with contextlib.suppress(ChildProcessError):
            for _ in range(int(_ENDING / _POLL)):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
                time.sleep(_POLL)
            return False
        return True

    def _forget(self, child: _Spawned) -> None:
        with self._lock:
            self._waiting.pop(child.number, None)
            self._children.pop(child.number, None)
        child.stdin.close()
        child.stdout.close()

    def _listen(self) -> None:
        """Hear what the spawner says, from the first child on: a process that confines itself has one thread alone."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._hear, name="pumice-spawner", daemon=True)
            self._reader.start()

    def _send(self, message: wire.Message, pipes: tuple[int, ...] = ()) -> None:
        try:
            if self._gone:
                raise OSError
            wire.send(self._channel, message, pipes)
        except OSError:
            raise EngineError(_GONE) from None
        except OverflowError as error:
            raise EngineError(f"no process can be started: {error}") from None

    def _hear(self) -> None:
        try:
            while (received := wire.receive(self._channel, wire.TOLD)) is not None:
                told, pipes = received
                wire.close(pipes)
                self._take(told)
        except OSError:
            pass  # it has ended
        except (OverflowError, msgspec.MsgspecError) as error:
            logger.error("the process that starts engines says what it should not: %s", error)
        finally:
            self._lose()

    def _lose(self) -> None:
        """Have nobody wait for a spawner that is not heard any more."""
        with self._lock:
            self._gone = True
            waiting, self._waiting = self._waiting, {}
            children, self._children = self._children, {}
        for child in children.values():
            child.lost = True
            child.over.set()
        for future in waiting.values():
            future.set_exception(EngineError(_GONE))
        if not self._closing:
            logger.error("%s; what runs goes on", _GONE)

    def _take(self, told: wire.Told) -> None:
        with self._lock:
            waits = None if isinstance(told, wire.Ended) else self._waiting.pop(told.number, None)
            child = None if isinstance(told, wire.Started) else self._children.pop(told.number, None)
        if isinstance(told, wire.Ended) and child:
            child.status = told.status
            child.over.set()
        elif isinstance(told, wire.Started) and waits:
            waits.set_result(told.pid)
        elif isinstance(told, wire.NotStarted) and waits:
            waits.set_exception(_error_of(told))


def _error_of(told: wire.NotStarted) -> Exception:
    kind = class_named(told.kind) if told.kind else OSError
    try:
        error = kind(told.message) if kind else None
        str(error)  # raises where a message is not what the class takes
    except (TypeError, AttributeError):
        error = None
    return error or EngineError(told.message)


class _Spawned:
    """A child of the spawner. ``over``: its status is known, or is ``lost`` with the spawner."""

    def __init__(self, owner: Spawner, number: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.number = number
        self.pid = 0
        self.stdin = stdin
        self.stdout = stdout
        self.status = UNKNOWN
        self.over = threading.Event()
        self.lost = False
        self._owner = owner

    def poll(self) -> int | None:
        return self.status if self.over.is_set() and not self.lost else None

    def wait(self, timeout: float | None = None) -> int:
        """Of one that is lost at once: whoever asks has closed its input, or seen its output end."""
        if not self.over.wait(timeout):
            raise subprocess.TimeoutExpired("a child", timeout or 0.0)
        return self.status

    def kill(self, if_stopped: bool = False) -> None:
        self._owner.kill(self, if_stopped)
