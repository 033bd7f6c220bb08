"""Write frames of messages to a pipe from any thread, and read them until the pipe ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import IO

from pumice.errors import EngineError
from pumice.isolation.wire import read_frame, write_frame


class FrameWriter:
    """Writes whole frames to an unbuffered stream. Thread-safe."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> None:
        with self._lock:
            write_frame(self._stream, data)


def read_frames(stream: IO[bytes], most: Callable[[], int]) -> Iterator[bytes]:
    """Yield frames until the other end closes, even in the middle of a frame.

    ``most`` returns the maximum bytes and is called for every frame. Raises EngineError for a larger frame.
    """
    try:
        while (data := read_frame(stream, most)) is not None:
            yield data
    except OverflowError as error:
        raise EngineError(f"a message from another process has {error} bytes, which exceeds the limit") from None
