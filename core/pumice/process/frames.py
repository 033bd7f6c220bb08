"""Write frames of messages to a pipe from any thread, and read them until the pipe ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import IO

from pumice.errors import EngineError
from pumice.isolation.wire import read_frame, write_frame

PIPE_BYTES = 1 << 20


def widen(pipe: IO[bytes]) -> None:
    """Let a pipe hold PIPE_BYTES, where the system allows it, so that large frames take fewer turns."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def frame(data: bytes) -> bytes:
    """Return a frame."""
    stream = BytesIO()
    write_frame(stream, data)
    return stream.getvalue()


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
