"""Frames of messages over a pipe, written by any thread, and read until it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import IO

from pumice.errors import EngineError
from pumice.isolation.wire import read_frame, write_frame


class FrameWriter:
    """Writes frames whole, from any thread. ``stream`` is not buffered."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> None:
        with self._lock:
            write_frame(self._stream, data)


def read_frames(stream: IO[bytes], most: Callable[[], int]) -> Iterator[bytes]:
    """Frames until the other end closes, or ends in the middle of one.

    Raises EngineError for one of more than ``most()`` bytes, which are not read. ``most`` is called when a frame comes.
    """
    try:
        while (data := read_frame(stream, most)) is not None:
            yield data
    except OverflowError as error:
        raise EngineError(f"a message from another process has {error} bytes, more than it may have") from None
