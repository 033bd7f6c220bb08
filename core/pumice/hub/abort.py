"""Abort downloads from another thread."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from pumice.errors import HubError


class AbortedError(HubError):
    """Raised by an aborted download."""


class Abort:
    """Aborts a download from another thread, even while it waits for a silent server."""

    def __init__(self) -> None:
        self._aborted = threading.Event()
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def abort(self) -> None:
        """Abort the download and end every wait. Thread-safe."""
        self._aborted.set()
        self._hang_up()

    def check(self) -> None:
        """Raise AbortedError after ``abort``."""
        if self._aborted.is_set():
            raise AbortedError("the download was cancelled; the received part is kept")

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``. Raises like ``check``, as soon as ``abort`` is called."""
        self._aborted.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Break the connections after ``seconds``, since timeouts of a socket restart with every byte."""
        timer = threading.Timer(seconds, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Record the sockets of a request, as its extension ``trace``."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            connection = facts["return_value"].get_extra_info("socket")
            with self._lock:
                if connection is not None:  # None for TLS inside of a proxy's TLS
                    self._sockets.add(connection)
            self.check()

    def _hang_up(self) -> None:
        with self._lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)  # SSLSocket.shutdown would drop its state
