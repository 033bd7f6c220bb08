"""Child processes, and their kinds."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from typing import IO, Final, NamedTuple, Protocol, Self

from pumice.lazy import resolve
from pumice.sandbox.launch import Launch

_KILLED_SECONDS = 10.0  # in which the kernel frees what a killed process has

logger = logging.getLogger("pumice")


class Child(Protocol):
    """A process with pipes to its standard input and output, both unbuffered."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the status like ``subprocess``; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the status. Raises subprocess.TimeoutExpired."""

    def kill(self, if_stopped: bool = False) -> None:
        """Kill the process; with ``if_stopped``, only if it is stopped, for example by SIGSTOP."""


class OwnChild(subprocess.Popen[bytes]):
    """A child started by this process."""

    @classmethod
    def begin(cls, kind: str, launch: Launch, stdin: int, stdout: int) -> Self:
        """Start a child. Raises OSError."""
        return cls(
            launch.args,
            env=launch.env,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL if KINDS[kind].silent else None,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is handled by the parent
        )

    def kill(self, if_stopped: bool = False) -> None:
        if not if_stopped or (self.returncode is None and is_stopped(self.pid)):
            super().kill()


class ChildKind(NamedTuple):
    """A kind of children. ``launch`` names the function that turns an order into a ``pumice.sandbox.Launch``."""

    launch: str
    silent: bool  # discard standard error
    prepared: str = ""  # module of a process that waits for a launch, with everything imported; empty: none


KINDS: Final = {
    "engine": ChildKind("pumice.process.confinement:launch_engine", silent=False, prepared="pumice.process.prepared"),
    "reader": ChildKind("pumice.process.confinement:launch_reader", silent=True),
    "worker": ChildKind("pumice.isolation.limits:launch_worker", silent=True),
}

UNKNOWN: Final = 1 << 16  # status of a process whose end was not observed


def popen(kind: str, order: bytes, stdin: int, stdout: int) -> OwnChild:
    """Start a child of this process. Raises OSError, and PumiceError if the order is refused."""
    return OwnChild.begin(kind, resolve(KINDS[kind].launch)(order), stdin, stdout)


def is_stopped(pid: int) -> bool:
    """Return True if a child of this process is stopped, for example by SIGSTOP."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(OSError):
            return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def end(child: Child) -> int:
    """Kill a child, wait for its end, and return the status: ``UNKNOWN`` if it does not end."""
    child.kill()
    try:
        return child.wait(_KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        logger.error("process %d has not ended %g seconds after it was killed", child.pid, _KILLED_SECONDS)
        return UNKNOWN


def describe_status(status: int) -> str:
    """Return the name of the signal that ended a process, or ``status 1``."""
    if status == UNKNOWN:
        return "an unknown status"
    if status >= 0:
        return f"status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
