"""Write frames of messages to a pipe from any thread, and read them until the pipe ends."""

from __future__ import annotations

import contextlib
import os
import queue
import select
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


class FrameSender:
    """Writes frames to a pipe without keeping the sending thread waiting, in the order of sending.

    A small frame is written at once if the pipe has room. Others are left to ``run``, which another thread calls: it
    may wait long for Python's lock, 10 to 50 ms on a machine where 64 requests arrive at once.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.RLock()  # the garbage collector may send while its thread does
        self._n_left = 0  # frames that the other thread has not written
        self._room: select.poll | None = None
        if hasattr(select, "poll"):
            self._room = select.poll()
            self._room.register(pipe.fileno(), select.POLLOUT)

    def send(self, data: bytes) -> None:
        with self._lock:
            if not self._n_left and self._is_small(data) and self._has_room():
                with contextlib.suppress(OSError):  # the reading thread reports the end of the process
                    os.write(self._pipe.fileno(), frame(data))
                return
            self._put(data)

    def close(self) -> None:
        """End ``run``, and close the pipe, after all frames were written."""
        self._put(None)

    def run(self) -> None:
        """Write frames until the end."""
        with contextlib.suppress(OSError), self._pipe:  # as above
            while (data := self._frames.get()) is not None:
                write_frame(self._pipe, data)
                with self._lock:
                    self._n_left -= 1

    def _put(self, data: bytes | None) -> None:
        with self._lock:
            self._n_left += 1
            self._frames.put(data)

    def _is_small(self, data: bytes) -> bool:
        """Return True if a pipe that has room takes the whole frame."""
        return self._room is not None and len(data) + 64 <= select.PIPE_BUF

    def _has_room(self) -> bool:
        return self._room is not None and any(event == select.POLLOUT for _, event in self._room.poll(0))


def read_frames(stream: IO[bytes], most: Callable[[], int]) -> Iterator[bytes]:
    """Yield frames until the other end closes, even in the middle of a frame.

    ``most`` returns the maximum bytes and is called for every frame. Raises EngineError for a larger frame.
    """
    try:
        while (data := read_frame(stream, most)) is not None:
            yield data
    except OverflowError as error:
        raise EngineError(f"a message from another process has {error} bytes, which exceeds the limit") from None
