"""Messages over a pipe: each is a length, and that many bytes of pickle. Both ends are processes of one program."""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pumice.config import Config
from pumice.engine.messages import Event, Facts, Output

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Load:
    """The first command: the file, its settings, and what the process tells of itself; ``level`` of what it logs."""

    path: Path
    config: Config
    name: str
    command: str
    level: int


@dataclass(frozen=True)
class Loading:
    """So many steps of loading are done."""

    done: int
    total: int


@dataclass(frozen=True)
class Loaded:
    """The engine takes commands from now on."""

    facts: Facts


@dataclass(frozen=True)
class NotLoaded:
    """The last message of a process whose model cannot be had."""

    error: Exception


@dataclass(frozen=True)
class Logged:
    level: int
    message: str


def pack(events: Iterable[Event]) -> list[Any]:
    """Events for a frame. Outputs are most of them: as plain tuples they pickle in a third of the time."""
    return [tuple(event) if isinstance(event, Output) else event for event in events]


def unpack(packed: Iterable[Any]) -> list[Event]:
    return [Output._make(each) if isinstance(each, tuple) else each for each in packed]


class FrameWriter:
    """Writes messages whole, from any thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, message: Any) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._stream.write(_LENGTH.pack(len(data)) + data)
            self._stream.flush()


def read_frames(stream: IO[bytes]) -> Iterator[Any]:
    """Messages until the other end closes, or ends in the middle of one."""
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        data = stream.read(length)
        if len(data) < length:
            return
        yield pickle.loads(data)
