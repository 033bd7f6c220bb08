"""Messages between a process and its spawner: MessagePack of typed structures, each behind its length."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

MAX_BYTES: Final = 1 << 24  # of a message: an order has the configuration of a model, with its chat template
_LENGTH = struct.Struct("<I")
_N_PIPES = 2

Number = Annotated[int, Meta(ge=0, le=2**53)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """``number`` is that of a child, which who asks for it chooses and never uses again."""

    number: Number


class Start(Message, frozen=True):
    """Start a child. Two pipes come with this, its standard input and output."""

    kind: Annotated[str, Meta(max_length=100)]
    order: bytes


class Kill(Message, frozen=True):
    """End a child at once, or only if it is stopped."""

    if_stopped: bool


class Started(Message, frozen=True):
    pid: Number


class NotStarted(Message, frozen=True):
    """``kind``: the name of a class of ``pumice.errors``; empty: the system did not start it."""

    kind: str
    message: str


class Ended(Message, frozen=True):
    """``status`` as ``subprocess`` has it."""

    status: int


Asked = Start | Kill
Told = Started | NotStarted | Ended
ASKED: Final[msgspec.msgpack.Decoder[Asked]] = msgspec.msgpack.Decoder(Asked)
TOLD: Final[msgspec.msgpack.Decoder[Told]] = msgspec.msgpack.Decoder(Told)


def send(channel: socket.socket, message: Message, pipes: tuple[int, ...] = ()) -> None:
    """Raises OSError, and OverflowError for a message that is too large."""
    data = msgspec.msgpack.encode(message)
    if len(data) > MAX_BYTES:
        raise OverflowError(f"a message of {len(data)} bytes, at most {MAX_BYTES} are sent")
    head = _LENGTH.pack(len(data))
    if pipes:
        n_sent = socket.send_fds(channel, [head], pipes)
        head = head[n_sent:]
    channel.sendall(head + data)


def receive(channel: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> tuple[T, list[int]] | None:
    """Return a message and the pipes that came with it, or None where the other end is closed.

    Raises OSError, OverflowError, and msgspec.MsgspecError for what ``decoder`` does not take.
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
    """The bytes of a message whose first bytes came; None where it does not end. Raises as ``receive``."""
    rest = _read(channel, _LENGTH.size - len(head))
    if rest is None:
        return None
    (length,) = _LENGTH.unpack(head + rest)
    if length > MAX_BYTES:
        raise OverflowError(f"a message of {length} bytes, at most {MAX_BYTES} are read")
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
