"""The samples of a piece of a speech as they come, for threads and coroutines."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


class SpeechStream:
    """Takes the parts of a piece from ``put``, ``end`` and ``fail``, and gives them one by one. Thread-safe.

    ``close`` ends the speech; ``cancel``, which it calls, is set by who makes the parts.

    Attributes:
        n_frames: number of frames, once the piece has ended.
    """

    def __init__(self) -> None:
        self.cancel: Callable[[], object] = lambda: None
        self.n_frames = 0
        self._parts: deque[Samples] = deque()
        self._wanted: Future[Samples | None] | None = None
        self._error: Exception | None = None
        self._ended = False
        self._lock = threading.Lock()

    def next(self) -> Future[Samples | None]:
        """Return the next samples; None at the end. A future at a time is waited for."""
        future: Future[Samples | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._wanted = future
        self._serve()
        return future

    def put(self, samples: Samples) -> None:
        with self._lock:
            self._parts.append(samples)
        self._serve()

    def end(self, n_frames: int) -> None:
        self.n_frames, self._ended = n_frames, True
        self._serve()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._serve()

    def close(self) -> None:
        """End the speech, if it goes on."""
        if not self._ended and self._error is None:
            self.cancel()

    def _serve(self) -> None:
        with self._lock:
            future = self._wanted
            ready = self._parts or self._ended or self._error
            if future is None or not ready:
                return
            self._wanted = None
            part = self._parts.popleft() if self._parts else None
        if part is None and self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(part)
