"""Messages between a process and its spawner: typed MessagePack structures, each preceded by its length."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

MAX_BYTES: Final = 1 << 24  # of a message; an order contains a model's configuration with its chat template
_LENGTH = struct.Struct("<I")
_N_PIPES = 2

Number = Annotated[int, Meta(ge=0, le=2**53)]


class SpawnMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages. ``number`` identifies a child; the client chooses it and never reuses it."""

    number: Number


class Start(SpawnMessage, frozen=True):
    """Start a child. Two pipes are attached: its standard input and output."""

    kind: Annotated[str, Meta(max_length=100)]
    order: bytes


class Kill(SpawnMessage, frozen=True):
    """Kill a child; with ``if_stopped``, only if it is stopped."""

    if_stopped: bool


class Started(SpawnMessage, frozen=True):
    pid: Number


class NotStarted(SpawnMessage, frozen=True):
    """The child was not started. ``kind`` is a class of ``pumice.errors``; empty for an error of the system."""

    kind: str
    message: str


class Ended(SpawnMessage, frozen=True):
    """A child has ended, with a status like that of ``subprocess``."""

    status: int


SpawnRequest = Start | Kill
SpawnReport = Started | NotStarted | Ended
ASKED: Final[msgspec.msgpack.Decoder[SpawnRequest]] = msgspec.msgpack.Decoder(SpawnRequest)
TOLD: Final[msgspec.msgpack.Decoder[SpawnReport]] = msgspec.msgpack.Decoder(SpawnReport)


def send(channel: socket.socket, message: msgspec.Struct, pipes: tuple[int, ...] = ()) -> None:
    """Send a message. Raises OSError, and OverflowError if it is too large."""
    data = msgspec.msgpack.encode(message)
    if len(data) > MAX_BYTES:
        raise OverflowError(f"a message of {len(data)} bytes exceeds the limit of {MAX_BYTES}")
    head = _LENGTH.pack(len(data))
    if pipes:
        n_sent = socket.send_fds(channel, [head], pipes)
        head = head[n_sent:]
    channel.sendall(head + data)


def receive(channel: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> tuple[T, list[int]] | None:
    """Return a message and its attached pipes, or None if the other end is closed.

    Raises OSError, OverflowError, and msgspec.MsgspecError if the message is invalid.
    """
    head, pipes, _, _ = socket.recv_fds(channel, _LENGTH.size, _N_PIPES)
    message = None
    try:
        data = _rest(channel, head) if head else None
        message = None if data is None else decoder.decode(data)
    finally:
        if message is None:
            close(pipes)
    return None if message is None else (message, pipes)


def _rest(channel: socket.socket, head: bytes) -> bytearray | None:
    """Return a message whose first bytes were read; None if it is incomplete. Raises like ``receive``."""
    rest = _read(channel, _LENGTH.size - len(head))
    if rest is None:
        return None
    (length,) = _LENGTH.unpack(head + rest)
    if length > MAX_BYTES:
        raise OverflowError(f"a message of {length} bytes exceeds the limit of {MAX_BYTES}")
    return _read(channel, length)


def _read(channel: socket.socket, length: int) -> bytearray | None:
    data = bytearray()
    while len(data) < length:
        if not (part := channel.recv(min(length - len(data), 1 << 20))):
            return None
        data += part
    return data


def close(pipes: list[int]) -> None:
    for pipe in pipes:
        with contextlib.suppress(OSError):
            os.close(pipe)
