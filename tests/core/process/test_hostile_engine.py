"""An engine's process that was taken over by a hostile file: what it says is checked, and it ends alone."""

import logging
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import pumice
import pumice.process.confinement
import pumice.process.engine
from pumice.config import AdapterOptions
from pumice.engine import messages as msg
from pumice.model_files.summary import Summary
from pumice.process.awaited import MAX_BYTES, Awaited
from pumice.process.codec import REPORTS, Loaded, Loading, Logged, NotLoaded, Opened, StepEvents
from pumice.process.header import Header, Strings
from pumice.sandbox import Launch
from waiting import PATIENCE, wait_until

FACTS = msg.Facts(256, 256, 32, ["numpy"], {"weights": 1}, n_embd=4, n_labels=2)
SNAPSHOT = msg.Snapshot(0, 0, 1, 1, {}, {}, 0)

FAR_END = """
import sys
read = sys.stdin.buffer.read
read(int.from_bytes(read(4), "little"))
out = sys.stdout.buffer
first, then, endless = {first!r}, {then!r}, {endless!r}
out.write(first)
out.flush()
if then is not None:
    read(int.from_bytes(read(4), "little"))
    out.write(then)
    out.flush()
while endless:
    out.write(endless)
    out.flush()
read()
"""


def frame(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def report(*messages: object) -> bytes:
    return b"".join(frame(REPORTS.encode(message)) for message in messages)


def step(*events: object) -> bytes:
    return report(StepEvents(events))


def raw(value: object) -> bytes:
    return frame(msgspec.msgpack.encode(value))


LOADED = report(Loaded(FACTS))
EMPTY = Summary({}, 0, 0, 0, "", 0.0, "")
OPENED = report(Opened(Header({}, EMPTY)))


def start_instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run a program where an engine's process is started."""
    launched = Launch([sys.executable, "-S", "-c", code], dict(os.environ))
    monkeypatch.setattr(pumice.process.confinement, "launch_engine", lambda order: launched)


@pytest.fixture
def hostile(path, monkeypatch) -> Callable[..., pumice.Model]:
    """Loads a model whose engine says ``first`` when it is loaded, and ``then`` to the first command."""

    def load(first: bytes, then: bytes | None = None, endless: bytes = b"", **options: object) -> pumice.Model:
        code = FAR_END.format(first=first, then=then, endless=endless)
        start_instead(monkeypatch, code)
        return pumice.load_process(path, backend="numpy", **options)

    return load


class Bomb:
    def __reduce__(self):
        return print, ("unpickled",)


BEFORE = {
    "nothing that can be read": b"\x03\x00\x00\x00abc",
    "a pickle": frame(pickle.dumps(Bomb())),
    "an endless frame": b"\xff\xff\xff\xff",
    "events before it is loaded": step(msg.Accepted(0)),
    "a command": raw(["Close"]),
    "facts that are none": raw(["Loaded", {"n_ctx": -5}]),
    "a vocabulary of any size": raw(["Loaded", [{"n_ctx": 1, "n_ctx_train": 1, "n_vocab": 2**40}]]),
    "an error that is none": raw(["NotLoaded", ["SystemExit", ["a"]]]),
    "steps that are no numbers": raw(["Loading", "a", "b"]),
    "a line without an end": raw(["Logged", 20, "a" * 100_000]),
    "two headers": OPENED * 2,
    "a level of no log": raw(["Logged", 1000, "a"]),
}


@pytest.mark.parametrize("said", BEFORE.values(), ids=BEFORE)
def test_invalid_messages_during_loading_are_an_error(hostile, said, capfd):
    with pytest.raises(pumice.EngineError, match="violated the protocol"):
        hostile(said)
    assert "unpickled" not in capfd.readouterr().out


AFTER = {
    "garbage": b"\x05\x00\x00\x00hello",
    "two loads": LOADED,
    "a header after the load": OPENED,
    "progress of a load": report(Loading(1, 2)),
    "an error of a load": report(NotLoaded(pumice.ModelError("no"))),
    "events of many that are none": step(*(msg.Accepted(1000 + id) for id in range(10))),
    "too long": struct.pack("<I", MAX_BYTES + (1 << 20)),
    "an answer to another question": step(msg.Inspected(0, SNAPSHOT)),
    "tokens of no vocabulary": step(msg.Output(0, [32], ["a"])),
    "tokens without texts": step(msg.Output(0, [1, 2], ["a"])),
    "no tokens": step(msg.Output(0, [], [])),
    "more tokens than asked for": step(msg.Output(0, [1] * 11, ["a"] * 11)),
    "probabilities that nobody asked for": step(msg.Output(0, [1], ["a"], [msg.Logprobs(0.0, [])])),
    "a text that is none": raw(["StepEvents", [["Output", 0, [1], [b"\xff\xfe"]]]]),
}


@pytest.mark.parametrize("said", AFTER.values(), ids=AFTER)
def test_later_invalid_messages_fail_the_engines_requests_alone(hostile, said, path):
    with hostile(LOADED, said) as model:
        stream = model.stream("a", max_tokens=10)
        with pytest.raises(pumice.EngineError, match="violated the protocol"):
            stream.completion()
        assert model.engine.link._child.poll() is not None
        with pytest.raises(pumice.EngineError):
            model.generate("a")


def test_log_records_of_the_engine_are_one_line(hostile, caplog):
    with caplog.at_level(logging.INFO, "pumice"):
        hostile(report(Logged(20, "a\nWARNING: forged \x1b[31m%s")) + LOADED).close()
    assert [each.getMessage() for each in caplog.records] == ["a\\nWARNING: forged \\x1b[31m%s"]


def test_a_flood_waits_for_who_listens(hostile, monkeypatch):
    """No more messages of an endlessly reporting engine are read than the event loop has handled."""
    monkeypatch.setattr(pumice.process.engine, "_AHEAD", 10)
    monkeypatch.setattr(pumice.process.engine, "_AHEAD_SECONDS", PATIENCE)
    waiting: list[object] = []

    def deliver(*call: object) -> None:
        waiting.append(call)

    with hostile(LOADED, b"", endless=step(msg.Progress(0, 1, 2, 0, 0.0)), deliver=deliver) as model:
        stream = model.stream("a")
        wait_until(lambda: len(waiting) >= 10)
        threading.Event().wait(0.2)  # more may come until then, and none after it
        n_waiting = len(waiting)
        assert n_waiting <= 11
        waiting[-1][0]()  # heard
        wait_until(lambda: len(waiting) > n_waiting)
        model.engine.link.kill()
        waiting[-1][0]()
    del stream


def awaited(*commands: object) -> Awaited:
    owed = Awaited()
    owed.facts = FACTS
    for command in commands:
        owed.add(command)
    return owed


def encoded(*shapes: tuple[int, ...]) -> msg.Encoded:
    return msg.Encoded(1, [np.zeros(shape, np.float32) for shape in shapes])


LISTS = [msg.Logprobs(-1.0, [(5, -1.0)])]
RIGHT = [
    (msg.Encode(1, [[1, 2], [3]], "mean"), encoded((4,), (4,))),
    (msg.Encode(1, [[1, 2], [3]], "none"), encoded((2, 4), (1, 4))),
    (msg.Encode(1, [[1, 2]], "cls", True), encoded((2,))),
    (msg.Score(1, [1, 2], 1), msg.Scored(1, LISTS)),
    (msg.SavePrompt(1, [1, 2]), msg.PromptSaved(1, 2)),
    (msg.SetAdapters(1, {"a": AdapterOptions("a.gguf")}), msg.AdaptersSet(1, ["a"])),
    (msg.Inspect(1), msg.Inspected(1, SNAPSHOT)),
    (msg.Add([1], msg.Request([1])), msg.Finished(1, "", "stop", msg.Timings())),
    (msg.Add([1], msg.Request([1], logprobs=1)), msg.Finished(1, "", "stop", msg.Timings(), (1, *LISTS))),
    (msg.Inspect(1), msg.Failed(1, pumice.EngineError("no"))),
]
WRONG = [
    (msg.Encode(1, [[1, 2], [3]], "mean"), encoded((4,))),
    (msg.Encode(1, [[1, 2]], "mean"), encoded((2, 4))),
    (msg.Encode(1, [[1, 2]], "none"), encoded((3, 4))),
    (msg.Encode(1, [[1, 2]], "mean"), msg.Scored(1, LISTS)),
    (msg.Score(1, [1, 2, 3], 1), msg.Scored(1, LISTS)),
    (msg.Score(1, [1, 2], 0), msg.Scored(1, LISTS)),
    (msg.Score(1, [1, 2], 1), msg.Scored(1, [msg.Logprobs(-1.0, [(32, -1.0)])])),
    (msg.SavePrompt(1, [1, 2]), msg.PromptSaved(1, 3)),
    (msg.SetAdapters(1, {"a": AdapterOptions("a.gguf")}), msg.AdaptersSet(1, ["b"])),
    (msg.Inspect(1), msg.Finished(1, "", "stop", msg.Timings())),
    (msg.Inspect(1), msg.Accepted(1)),
    (msg.Add([1], msg.Request([1])), encoded((4,))),
    (msg.Add([1], msg.Request([1])), msg.Finished(1, "", "stop", msg.Timings(), (1, *LISTS))),
    (msg.Add([1], msg.Request([1], logprobs=1)), msg.Finished(1, "", "stop", msg.Timings(), (32, *LISTS))),
    (msg.Add([1], msg.Request([1], logprobs=0)), msg.Finished(1, "", "stop", msg.Timings(), (1, *LISTS))),
    (msg.Add([1], msg.Request([1], logprobs=1)), msg.Output(1, [1], ["a"])),
    (msg.Add([1], msg.Request([1], logprobs=1)), msg.Output(1, [1], ["a"], LISTS * 2)),
]


@pytest.mark.parametrize(("command", "event"), RIGHT)
def test_an_expected_reply_is_accepted_once(command, event):
    owed = awaited(command)
    before = owed.max_bytes
    assert owed.check([event, event]) == [event]
    assert owed.max_bytes <= before
    assert owed.max_bytes == MAX_BYTES
    with pytest.raises(pumice.EngineError):
        owed.check([event])


@pytest.mark.parametrize(("command", "event"), WRONG)
def test_an_unexpected_reply_is_an_error(command, event):
    with pytest.raises(pumice.EngineError):
        awaited(command).check([event])


def test_a_header_of_a_wrong_type_is_an_error_before_the_weights_are_loaded(hostile):
    with pytest.raises(pumice.EngineError, match="sent 'a' with a wrong type"):
        hostile(report(Opened(Header({"a": Strings(b"\x01", b"a")}, EMPTY))))


def test_half_a_message_is_an_end(path, monkeypatch):
    code = f"import sys; sys.stdout.buffer.write({LOADED[:9]!r})"
    start_instead(monkeypatch, code)
    with pytest.raises(pumice.EngineDiedError, match="status 0"):
        pumice.load_process(path, backend="numpy")


def test_events_after_the_end_are_not_heard(hostile):
    ends = step(
        msg.Output(0, [1], ["a"]),
        msg.Finished(0, "", "stop", msg.Timings()),
        msg.Finished(0, "", "stop", msg.Timings()),
    )
    with hostile(LOADED, ends) as model:
        assert model.generate("a", max_tokens=10).text == "a"
