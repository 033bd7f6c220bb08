"""The processes that have a model loaded, for `pumice ps`.

Each process writes a file and holds a lock beside it. The system releases the lock when the process ends, for whatever
reason, so a file without a held lock is stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from pumice.wording import printable

_Entry = TypeVar("_Entry", "RunningModel", "RunningServer")
_MAX_BYTES = 1 << 20  # maximum size of a process's file


@dataclass(frozen=True)
class RunningModel:
    """A model loaded by a process."""

    command: str  # the subcommand of `pumice`
    model: str  # name on the command line
    backends: list[str]
    memory: dict[str, int]  # bytes by purpose
    n_ctx: int
    address: str = ""  # address of the server, if any
    pid: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)  # seconds since 1970  # noqa: TID251 (shown)


def directory() -> Path:
    """Return ``$XDG_RUNTIME_DIR/pumice`` if the variable is an absolute path, else ``$XDG_STATE_HOME/pumice/run``."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        return runtime / "pumice"
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "pumice" / "run"


@dataclass(frozen=True)
class RunningServer:
    """A server on this machine.

    Attributes:
        address: URL without a path.
        models: Name of each model in requests, by the path or name that the server was started with.
        pid: Its process.
        since: Start in seconds since 1970.
    """

    address: str
    models: dict[str, str]
    pid: int = field(default_factory=os.getpid)
    since: float = field(default_factory=time.time)  # noqa: TID251 (shown)


def server_directory() -> Path:
    """Return the folder of running servers. No confined process may write there: clients trust the addresses."""
    return directory().with_name(f"{directory().name}-servers")


def listed(running: RunningModel) -> AbstractContextManager[None]:
    """List a model in ``pumice ps`` while it is loaded, if the folder can be written."""
    return _listed(directory(), running)


def listed_server(server: RunningServer) -> AbstractContextManager[None]:
    """List a server while it runs, if the folder can be written. The process may confine itself meanwhile."""
    return _listed(server_directory(), server)


@contextlib.contextmanager
def _listed(folder: Path, entry: RunningModel | RunningServer) -> Iterator[None]:
    from filelock import FileLock

    path = folder / f"{entry.pid}-{uuid.uuid4().hex[:8]}.json"
    lock = FileLock(path.with_suffix(".lock"))
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire()
        path.write_text(json.dumps(asdict(entry)))
    try:
        yield
    finally:
        _forget(path)
        with contextlib.suppress(OSError):  # a confined process may remove nothing there; readers do, by the lock
            lock.release()


def processes() -> list[RunningModel]:
    """Return the models that are loaded, oldest first; entries of processes that ended are removed."""
    return _running(directory(), RunningModel)


def servers() -> list[RunningServer]:
    """Return the servers that run, oldest first; entries of processes that ended are removed."""
    return _running(server_directory(), RunningServer)


def _running(folder: Path, kind: type[_Entry]) -> list[_Entry]:
    entries = [entry for path in folder.glob("*.json") if (entry := _read(path, kind))]
    return sorted(entries, key=lambda entry: entry.since)


def _read(path: Path, kind: type[_Entry]) -> _Entry | None:
    """Return the entry of a process that runs; None if it ended, or if the file is not such an entry."""
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
        entry = msgspec.json.decode(_content(path), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
    return msgspec.convert(_printable(msgspec.to_builtins(entry)), kind)


def _printable(value: object) -> object:
    """Return JSON data whose texts may be shown: another process wrote them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return value


def _content(path: Path) -> bytes:
    """Return the content of another process's file. Raises OSError if it is not a regular file."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path}: not a regular file")
        return file.read(_MAX_BYTES)


def _forget(path: Path) -> None:
    for file in (path, path.with_suffix(".lock")):
        with contextlib.suppress(OSError):
            file.unlink()
