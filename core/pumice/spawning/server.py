"""The spawner's process: starts children on request, reports their ends, and ends them with its client."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import NoReturn

import msgspec

from pumice.errors import PumiceError, class_named
from pumice.spawning import wire
from pumice.spawning.child import KINDS, OwnChild, popen
from pumice.spawning.fork import detach
from pumice.spawning.prepared import NUMBER, PreparedByClient

MAX_CHILDREN = 64  # at a time; a server has four workers per kind of work, and as many engines as fit


def serve(channel: socket.socket, begin: Callable[[], None], prepared: int | None = None) -> NoReturn:
    """Call ``begin``, and run the spawner in a freshly forked process until the other end closes ``channel``.

    ``prepared`` is the descriptor of a process that the client has prepared.
    """
    status = 1
    try:
        begin()
        detach(channel, prepared, same_session=True)
        status = _Children(channel, prepared).serve()
    except Exception as error:
        _say(f"the process that starts engines ends: {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _wake_at_ends() -> int:
    """Return a descriptor that is readable when a child has ended."""
    ends, wake = os.pipe()
    for descriptor in (ends, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return ends


def _kind(error: Exception) -> str:
    """Return the name of an error's class in ``pumice.errors``; empty if it has none."""
    names = (cls.__name__ for cls in type(error).__mro__ if class_named(cls.__name__) is cls)
    return next(names, "")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))


class _Children:
    def __init__(self, channel: socket.socket, prepared: int | None) -> None:
        self._channel = channel
        self._children: dict[int, OwnChild | PreparedByClient] = {}
        if prepared is not None:
            self._children[NUMBER] = PreparedByClient(prepared)
        self._ends = _wake_at_ends()
        self._selector = selectors.DefaultSelector()
        for source in (channel, self._ends):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> int:
        """Return the status of this process when the client closes the channel or violates the protocol."""
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is not self._channel:
                        self._reap()
                    elif not self._obey():
                        return 0
        except (OverflowError, msgspec.MsgspecError, ValueError) as error:
            _say(f"the process that starts engines received an invalid request, and ends: {error}")
            return 1
        except OSError:
            return 0  # the client has ended
        finally:
            for child in self._children.values():
                child.kill()
            for child in self._children.values():
                if isinstance(child, OwnChild):
                    with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it
                        child.wait(1)

    def _obey(self) -> bool:
        """Process a message; return False if the channel is closed. Raises ValueError if the message is invalid."""
        received = wire.receive(self._channel, wire.ASKED)
        if received is None:
            return False
        request, pipes = received
        try:
            if isinstance(request, wire.Kill):
                if request.number in self._children:
                    self._children[request.number].kill(request.if_stopped)
            elif request.kind not in KINDS or len(pipes) != 2 or request.number in self._children:
                raise ValueError(f"invalid request for a child: {request.kind!r:.40}, {len(pipes)} pipes")
            else:
                self._start(request, pipes[0], pipes[1])
        finally:
            wire.close(pipes)
        return True

    def _start(self, request: wire.Start, stdin: int, stdout: int) -> None:
        try:
            if len(self._children) >= MAX_CHILDREN:
                raise OSError(f"{MAX_CHILDREN} processes are already running")
            child = popen(request.kind, request.order, stdin, stdout)
        except (OSError, PumiceError) as error:
            wire.send(self._channel, wire.NotStarted(request.number, _kind(error), str(error)))
            return
        self._children[request.number] = child
        wire.send(self._channel, wire.Started(request.number, child.pid))

    def _reap(self) -> None:
        os.read(self._ends, 1 << 16)
        for number, child in list(self._children.items()):
            if (status := child.poll()) is not None:
                del self._children[number]
                wire.send(self._channel, wire.Ended(number, status))
