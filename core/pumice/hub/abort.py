"""Stopping a download from another thread."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from pumice.errors import HubError


class AbortedError(HubError):
    """Nobody wants the download any more."""


class Abort:
    """Stops a download from another thread, also while it waits for a silent server."""

    def __init__(self) -> None:
        self._aborted = threading.Event()
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def abort(self) -> None:
        """End every wait. Any thread may call this."""
        self._aborted.set()
        self._hang_up()

    def check(self) -> None:
        """Raise AbortedError after ``abort``."""
        if self._aborted.is_set():
            raise AbortedError("the download was cancelled; what came is kept")

    def sleep(self, seconds: float) -> None:
        """Wait. Raises as ``check``, as soon as ``abort`` is called."""
        self._aborted.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Break the connections after ``seconds``: timeouts of a socket begin anew with every byte."""
        timer = threading.Timer(seconds, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Note the sockets of a request: its extension ``trace``."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            each = facts["return_value"].get_extra_info("socket")
            with self._lock:
                if each is not None:  # TLS within that of a proxy has none
                    self._sockets.add(each)
            self.check()

    def _hang_up(self) -> None:
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)  # not SSLSocket's, which drops its state
