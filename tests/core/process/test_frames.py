"""Frames in a pipe: small ones are written by the thread that sends them, and none before those sent earlier."""

import io
import os
import sys
import threading

import pytest

from pumice.process.frames import FrameSender, read_frames

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be polled")


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as receiving, open(writer, "wb", buffering=0) as sending:
        yield receiving, sending


def received(receiving: io.RawIOBase, n: int) -> list[bytes]:
    frames = read_frames(receiving, lambda: 1 << 30)
    return [next(frames) for _ in range(n)]


def test_frames_keep_their_order(pipe):
    """A large frame holds up those behind it."""
    receiving, sending = pipe
    sender = FrameSender(sending)
    sent = [b"first", b"x" * 100_000, b"second", b"y" * 100_000, b"third"]
    for data in sent:
        sender.send(data)
    writing = threading.Thread(target=sender.run)
    writing.start()
    assert received(receiving, 5) == sent
    sender.close()
    writing.join()
    assert receiving.read() == b""
    sender.send(b"after the end")


def test_a_process_that_has_ended(pipe):
    receiving, sending = pipe
    receiving.close()
    FrameSender(sending).send(b"to nobody")
