"""Processes that import a child's modules before its task is known.

A server starts one before it imports its own modules, and hands it the launch of its only engine. It is a child of the
server, not of the spawner, which can end it, by a descriptor, after the server was confined.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from typing import IO, Final, cast

from pumice.lazy import resolve
from pumice.sandbox.launch import Launch, module_command, safe_environment
from pumice.spawning.child import KINDS, OwnChild, is_stopped

_LENGTH = struct.Struct("<I")

NUMBER: Final = 2**53  # of the prepared child in messages to the spawner, whose own children count from 0


class PreparedChild(OwnChild):
    """A prepared process. ``descriptor`` stands for it, whoever its parent is; ``end_it`` ends it once it is set."""

    number = NUMBER
    descriptor = -1
    end_it: Callable[[], None] | None = None

    @classmethod
    def start(cls, kind: str) -> PreparedChild | None:
        """Start the process for a child of a kind; None if that fails, or if the system has no such descriptors."""
        if not hasattr(os, "pidfd_open"):
            return None
        with contextlib.suppress(OSError):
            launch = Launch(module_command(KINDS[kind].prepared), safe_environment())
            child = cls.begin(kind, launch, subprocess.PIPE, subprocess.PIPE)
            try:
                child.descriptor = os.pidfd_open(child.pid)
            except OSError:
                child.discard()
                raise
            return child
        return None

    def become(self, kind: str, order: bytes, first: bytes) -> None:
        """Send the launch of an order, and what follows it in standard input. Raises like ``popen``."""
        launch: Launch = resolve(KINDS[kind].launch)(order)
        data = json.dumps(launch._asdict()).encode()
        with _broken_pipes_raise():
            for part in (_LENGTH.pack(len(data)), data, first):
                view = memoryview(part)
                while view:
                    view = view[cast(IO[bytes], self.stdin).write(view) :]

    def discard(self) -> None:
        """End the process, which was not used."""
        super().kill()
        self.wait()
        for pipe in (self.stdin, self.stdout):
            if pipe:
                pipe.close()
        self.close_descriptor()

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def kill(self, if_stopped: bool = False) -> None:
        if self.end_it is None:
            super().kill(if_stopped)
        elif self.poll() is None and not (if_stopped and not is_stopped(self.pid)):
            self.end_it()


def receive_launch(descriptor: int) -> Launch | None:
    """Return the launch that a prepared process gets, and read nothing that follows it; None without one."""
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        head = _read(stream, _LENGTH.size)
        data = _read(stream, *_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""
    return Launch(**json.loads(data)) if data else None


def _read(stream: IO[bytes], length: int) -> bytes:
    data = b""
    while len(data) < length and (part := stream.read(length - len(data))):
        data += part
    return data


@contextlib.contextmanager
def _broken_pipes_raise() -> Iterator[None]:
    """Let writing to a process that has ended raise BrokenPipeError; commands have the system's signal, which ends."""
    kept = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, kept)


class PreparedByClient:
    """A prepared child as the spawner sees it: it can be killed, and its parent notices its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def kill(self, if_stopped: bool = False) -> None:
        with contextlib.suppress(OSError):  # it has ended, or the system forbids that, as seccomp of a container does
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def poll(self) -> int | None:
        return None
