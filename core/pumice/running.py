"""The processes that have a model loaded, for `pumice ps`.

Each tells of itself by a file that it holds a lock on, so that one which ended, however it did, is known by its lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

from pumice.printable import printable

_MAX_BYTES = 1 << 20  # of what a process tells of itself


@dataclass(frozen=True)
class Running:
    """A model in a process."""

    command: str  # the subcommand of `pumice`
    model: str  # as it was named
    backends: list[str]
    memory: dict[str, int]  # bytes by purpose
    n_ctx: int
    address: str = ""  # where it is served
    pid: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)  # seconds since 1970


def directory() -> Path:
    """``$XDG_RUNTIME_DIR/pumice``, where there is such a directory, else ``$XDG_STATE_HOME/pumice/run``."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        return runtime / "pumice"
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "pumice" / "run"


@contextlib.contextmanager
def told(running: Running) -> Iterator[None]:
    """Tell of a model while it is loaded; where nothing can be written nobody is told."""
    from filelock import FileLock

    path = directory() / f"{running.pid}-{uuid.uuid4().hex[:8]}.json"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_suffix(".lock")))
            stack.callback(_forget, path)
            path.write_text(json.dumps(asdict(running)))
        yield


def processes() -> list[Running]:
    """All that are running, the oldest first; what those that ended left is removed."""
    found = [running for path in directory().glob("*.json") if (running := _read(path))]
    return sorted(found, key=lambda running: running.since)


def _read(path: Path) -> Running | None:
    """What a process tells of itself; None if it ended, or if it was taken over and tells what no process would."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            _forget(path)
        return None
    except Timeout:
        pass
    except OSError:
        return None
    try:
        running = msgspec.json.decode(_content(path), type=Running)
    except (OSError, msgspec.DecodeError):
        return None
    command, model, address, *backends = map(
        printable, (running.command, running.model, running.address, *running.backends)
    )
    return replace(running, command=command, model=model, address=address, backends=backends)


def _content(path: Path) -> bytes:
    """Of a file that another process wrote. Raises OSError for what is none."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(_MAX_BYTES)


def _forget(path: Path) -> None:
    for file in (path, path.with_suffix(".lock")):
        with contextlib.suppress(OSError):
            file.unlink()
