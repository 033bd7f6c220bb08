"""A web server on loopback that sends what a test wrote, byte by byte if need be: an answer a connection."""

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waiting import PATIENCE

Answer = bytes | Callable[[socket.socket, str], None]
"""Bytes to send, or what talks to the client; it is given the request's headers."""


class Web:
    """``gets``: answers to GET requests, of which the last is repeated; ``head``: to all HEAD requests."""

    def __init__(self, url: str, head: bytes, gets: list[Answer]) -> None:
        self.url = url
        self.head = head
        self.gets = gets
        self.requests: list[str] = []  # of GET
        self.ended = threading.Event()

    def answer(self) -> Answer:
        return self.gets.pop(0) if len(self.gets) > 1 else self.gets[0]


@contextmanager
def serve(*gets: Answer, head: bytes = b"") -> Iterator[Web]:
    """Serve until the end of the context. Without ``head`` HEAD requests are refused."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://localhost:{listening.getsockname()[1]}"
        web = Web(f"{address}/x.gguf", head or reply(b"", "405 No"), list(gets))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=_talk, args=(web, connection), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield web
        finally:
            web.ended.set()
            listening.shutdown(socket.SHUT_RDWR)


def _talk(web: Web, connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(PATIENCE)
        request = b""
        while b"\r\n\r\n" not in request:
            if not (data := connection.recv(4096)):
                return
            request += data
        if request.startswith(b"HEAD"):
            connection.sendall(web.head)
            return
        web.requests.append(request.decode())
        answer = web.answer()
        if callable(answer):
            answer(connection, request.decode())
        else:
            connection.sendall(answer)


def reply(body: bytes, status: str = "200 OK", length: int | None = -1, **headers: str) -> bytes:
    """A whole answer. ``length``: what is said of the body's; None: nothing."""
    lines = [f"HTTP/1.1 {status}", "Connection: close"]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length == -1 else length}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def ranges(data: bytes, etag: str = '"1"') -> Answer:
    """A file, or the part of it that is asked for."""

    def answer(connection: socket.socket, request: str) -> None:
        start = next(
            (int(line[13:].rstrip("-")) for line in request.split("\r\n") if line.startswith("Range: bytes=")), None
        )
        if start is None:
            connection.sendall(reply(data, ETag=etag))
        else:
            part = f"bytes {start}-{len(data) - 1}/{len(data)}"
            connection.sendall(reply(data[start:], "206 Part", ETag=etag, Content_Range=part))

    return answer


def reset_after(answer: bytes, n_bytes: int) -> Answer:
    """The connection is reset after ``n_bytes``."""

    def send(connection: socket.socket, _: str) -> None:
        connection.sendall(answer[:n_bytes])
        time.sleep(0.02)  # a reset throws away what was not read
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return send


def stall_after(answer: bytes, n_bytes: int) -> Answer:
    """Return an answer that sends nothing after ``n_bytes`` until the client leaves."""

    def send(connection: socket.socket, _: str) -> None:
        connection.sendall(answer[:n_bytes])
        connection.recv(1)

    return send


def drip(answer: bytes, n_bytes: int, seconds: float = 0.02, repeat: bool = False) -> Answer:
    """All after ``n_bytes`` comes one byte at a time, for ever if it is to be repeated."""

    def send(connection: socket.socket, _: str) -> None:
        connection.sendall(answer[:n_bytes])
        rest = answer[n_bytes:]
        for number in itertools.cycle(rest) if repeat else rest:
            connection.sendall(bytes([number]))
            time.sleep(seconds)

    return send
