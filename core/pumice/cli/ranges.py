"""Bytes of a repository's files for a confined command, from an unconfined process that is forked earlier.

The other process reads these files of one commit only, and never more than a header can have.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import NoReturn

from pumice.errors import HubError, PumiceError
from pumice.hub.headers import MOST_BYTES, ReadRange, RemoteModels, read_range
from pumice.spawning.fork import detach, fork_helper

_REQUEST = struct.Struct("<QQQ")  # number of the file, start, stop
_ANSWER = struct.Struct("<?Q")  # whether it succeeded, and the number of bytes that follow: content, or a message
_MOST_TOTAL = 1 << 31  # bytes of all answers


@contextlib.contextmanager
def range_reader(remote: RemoteModels) -> Iterator[ReadRange]:
    """Fork the process that reads files of ``remote``, and yield the function that asks it.

    Call this before another thread starts.
    """
    helper = fork_helper(lambda channel: _serve(channel, remote))
    near = helper.channel

    def read(number: int, start: int, stop: int) -> bytes:
        near.sendall(_REQUEST.pack(number, start, stop))
        succeeded, size = _ANSWER.unpack(_receive(near, _ANSWER.size))
        content = _receive(near, size)
        if not succeeded:
            raise HubError(content.decode("utf-8", "replace"))
        return content

    try:
        yield read
    finally:
        helper.end()


def _receive(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = channel.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise HubError("the process that reads headers has ended; try again")
        data += chunk
    return bytes(data)


def _serve(channel: socket.socket, remote: RemoteModels) -> NoReturn:
    """Answer requests until the other end closes ``channel``."""
    try:
        detach(channel)
        left = _MOST_TOTAL
        while True:
            succeeded, content = _answer(_REQUEST.unpack(_receive(channel, _REQUEST.size)), remote, left)
            left -= len(content)
            channel.sendall(_ANSWER.pack(succeeded, len(content)) + content)
    except (OSError, PumiceError):
        pass  # the other end is gone
    finally:
        os._exit(0)


def _answer(request: tuple[int, int, int], remote: RemoteModels, left: int) -> tuple[bool, bytes]:
    """Return whether a request of the command, which is not trusted, succeeded, and the content or a message."""
    number, start, stop = request
    try:
        if number >= len(remote.files) or stop - start > min(left, MOST_BYTES):
            raise HubError("the command asked for more than headers have")
        return True, read_range(remote, number, start, stop)
    except PumiceError as error:
        return False, str(error).encode()
