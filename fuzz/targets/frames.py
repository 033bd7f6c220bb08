"""Messages between processes: a single error, or messages that survive a round trip; frames respect limits."""

import io
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from fuzz.draw import Draw
from pumice.config import load_config
from pumice.engine import messages
from pumice.engine.messages import Encoded, Facts, Failed, Finished, Output, Request, Timings
from pumice.errors import EngineError, ModelError, PromptTooLongError, PumiceError
from pumice.grammar import Grammar
from pumice.isolation import wire
from pumice.process.codec import COMMANDS, REPORTS, CodecError, Load, Loaded, Loading, Logged, NotLoaded, StepEvents
from pumice.process.frames import read_frames

MODULES = ("pumice.process.codec", "pumice.process.frames", "pumice.isolation.wire")
MAX_LEN = 4000
_MOST = 1 << 12
_NAMES = (
    "Add", "Encode", "Score", "SavePrompt", "Cancel", "Inspect", "Close", "Load", "Loading", "Loaded", "NotLoaded",
    "PromptSaved", "Logged", "StepEvents", "Output", "Finished", "Failed", "Progress", "Inspected", "Scored", "Encoded",
    "ModelError", "QueueFullError", "stop",
)  # fmt: skip
_VALUES = (None, True, [], {}, -1, 2**31, 2**63, 1e300, float("nan"), b"\xff", [2**53, 4], [0, 0, "x"])
TOKENS = tuple(msgspec.msgpack.encode(value) for value in (*_NAMES, *_VALUES))


def seeds() -> Iterable[bytes]:
    request = Request(
        [1, 2], sampling={"temperature": 0.5}, stop=["\n"], grammar=Grammar("x", ["<a>"]), adapters={"a": 0.5}
    )
    encode = messages.Encode(1, [[1, 2], []], "mean", True, [0.5])
    commands = (messages.Add([1], request), encode, messages.Cancel(1), messages.Inspect(1), messages.Close())
    for command in commands:
        yield b"\0" + COMMANDS.encode(command)
    config = load_config({"n_ctx": 77, "sampling": {"seed": 5}})
    yield b"\0" + COMMANDS.encode(Load(Path("/m.gguf"), config, "name", "serve", 20))
    timings = Timings(5, 4, 0.1, 0.2, 3, 0.3)
    events = [Output(1, [5, 6], ["a", "é"]), Finished(1, "rest", "stop", timings), Failed(2, ModelError("no"))]
    arrays = Encoded(3, [np.arange(6, dtype=np.float32).reshape(2, 3)])
    reports = (
        *(
            StepEvents(events),
            StepEvents([arrays]),
            Loading(1, 2),
            Logged(20, "line"),
            NotLoaded(PromptTooLongError(5, 3)),
        ),
        Loaded(Facts(512, 512, 100, ["cpu"], {"weights": 5})),
    )
    for report in reports:
        yield b"\1" + REPORTS.encode(report)
    yield b"\2" + wire.encode(wire.TaskResult(msgspec.Raw(b"\x01"), "", ""))
    yield b"\3\5\0\0\0hello\3\0\0\0abc\xff\xff\xff\xff"


def check(data: bytes) -> None:
    draw = Draw(data)
    kind = draw.below(4)
    content = draw.rest()
    if kind == 3:
        _check_frames(content)
    elif kind == 2:
        try:
            wire.decode(content, wire.TaskResult)
        except msgspec.DecodeError:
            return
    else:
        _check_messages(REPORTS if kind else COMMANDS, content)


def _check_messages(codec: type, content: bytes) -> None:
    try:
        message = codec.decode(content)
    except CodecError as error:
        assert str(error).isprintable(), str(error)
        return
    assert isinstance(getattr(message, "error", PumiceError()), PumiceError)
    encoded = codec.encode(message)
    assert codec.encode(codec.decode(encoded)) == encoded


def _check_frames(content: bytes) -> None:
    stream = io.BytesIO(content)
    try:
        frames = list(read_frames(stream, lambda: _MOST))
    except EngineError as error:
        assert "exceeds the limit" in str(error)
        return
    written = b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)
    assert content.startswith(written)
    assert all(len(frame) <= _MOST for frame in frames)
