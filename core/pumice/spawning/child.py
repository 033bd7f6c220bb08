"""A child process, and the kinds that there are."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import IO, Final, NamedTuple, Protocol

from pumice.lazy import resolve


class Child(Protocol):
    """A process with pipes to its standard input and output, both unbuffered."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its status, as ``subprocess`` has it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its status when it has ended. Raises subprocess.TimeoutExpired."""

    def kill(self, if_stopped: bool = False) -> None:
        """End it at once; ``if_stopped``: only if it is stopped, as by SIGSTOP."""


class OwnChild(subprocess.Popen[bytes]):
    """A child of this process."""

    def kill(self, if_stopped: bool = False) -> None:
        if not if_stopped or self._is_stopped():
            super().kill()

    def _is_stopped(self) -> bool:
        if not hasattr(os, "waitid") or self.returncode is not None:
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False


class Kind(NamedTuple):
    """How children are started. ``launch``: names the function of an order that gives a ``pumice.sandbox.Launch``."""

    launch: str
    silent: bool  # its standard error is dropped


KINDS: Final = {
    "engine": Kind("pumice.process.confinement:launch_engine", silent=False),
    "reader": Kind("pumice.process.confinement:launch_reader", silent=True),
    "worker": Kind("pumice.isolation.limits:launch_worker", silent=True),
}

UNKNOWN: Final = 1 << 16  # the status of a process whose end nobody saw


def popen(kind: str, order: bytes, stdin: int, stdout: int) -> OwnChild:
    """Start a child here. Raises OSError, and PumiceError for an order that is refused."""
    launch, silent = KINDS[kind]
    arguments, environment = resolve(launch)(order)
    return OwnChild(
        arguments,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL if silent else None,
        bufsize=0,
        start_new_session=True,  # Ctrl-C in a terminal is for the program that started it
    )


def describe_status(status: int) -> str:
    """Return the name of the signal that ended a process, or ``status 1``."""
    if status == UNKNOWN:
        return "an unknown status"
    if status >= 0:
        return f"status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
