"""Messages as bytes: each comes back as it was, and bytes that are none are one error."""

import contextlib
import math
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pumice
from pumice.cache_tiers import Tally
from pumice.config import AdapterOptions
from pumice.embeddings import Embeddings
from pumice.engine import messages as msg
from pumice.errors import ModelError
from pumice.grammar import Grammar
from pumice.process import codec
from pumice.process.codec import COMMANDS, REPORTS, CodecError, decode_events, encode_command, encode_events

SNAPSHOT = msg.Snapshot(1, 2, 3, 1, {0: 10, 512: 4}, {0: 3, 512: 4}, 99, {"ram": Tally(1 << 33, 2, 3)})
TIMINGS = msg.Timings(5, 4, 0.1, 0.2, 3, 0.3)
EVENTS = [
    msg.Accepted(0),
    msg.Progress(2**62, 1, 2, 0, 0.5),
    msg.Output(1, [5, 6], ["a", "é😀"]),
    msg.Output(1, [5], ["a"], [msg.Logprobs(-0.5, [(5, -0.5), (6, -math.inf)])]),
    msg.Finished(1, "rest", "stop", TIMINGS),
    msg.Finished(1, "", "stop", TIMINGS, (7, msg.Logprobs(-0.5, [(5, -0.5)]))),
    msg.Inspected(2, SNAPSHOT),
    msg.Scored(3, [msg.Logprobs(-1.0, [])]),
    msg.PromptSaved(4, 64),
    msg.AdaptersSet(5, ["a"]),
]
REQUEST = msg.Request(
    [1, 2, 3],
    sampling={"temperature": 0.5, "seed": 2**63, "logit_bias": {5: -1.0}, "own": [1, None, {"a": "b"}]},
    samplers=["top_k"],
    stop=["\n"],
    special=[],
    stop_tokens=[],
    end_tokens=frozenset([1]),
    grammar=Grammar("start: A", ["<a>"], [], reasoning=("<think>", "</think>")),
    adapters={"a": 0.5},
    media=[],
)
COMMANDS_OF_EACH_KIND = [
    msg.Add([1], REQUEST),
    msg.Encode(1, [[1, 2], []], "mean", True, {"a": 0.5}, [[], []], terms=msg.Terms(-1, 2.5, "a client")),
    msg.EncodeMedia(1, "image", [1, 2, 3], b"pixels"),
    msg.Score(1, [1, 2], 3, {"a": 0.5}, "salt"),
    msg.SavePrompt(1, [1, 2], {"a": 0.5}, "salt"),
    msg.SetAdapters(1, {"a": AdapterOptions("a.gguf", 0.5, [1, 2])}),
    msg.Cancel(1),
    msg.Inspect(1),
    msg.Close(),
]


@pytest.mark.parametrize("command", COMMANDS_OF_EACH_KIND, ids=lambda each: type(each).__name__)
def test_commands_come_back(command):
    assert COMMANDS.decode(encode_command(command)) == command


def test_events_come_back():
    (data,) = encode_events(EVENTS)
    assert decode_events(data) == EVENTS


def test_a_configuration_without_layers_is_refused():
    empty = msgspec.msgpack.encode(["Load", b"/a.gguf", [], "name", "serve", 20])
    with pytest.raises(CodecError, match="array` of length >= 1"):
        COMMANDS.decode(empty)


class PluginsError(ModelError):
    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pumice.PromptTooLongError(5, 3), pumice.PromptTooLongError(5, 3)),
        (pumice.QueueFullError(5, 3), pumice.QueueFullError(5, 3)),
        (PluginsError("a", "b"), ModelError("a: b")),
        (ZeroDivisionError("a\nb"), pumice.EngineError("ZeroDivisionError: a\\nb")),
        (
            MemoryError(),
            pumice.OutOfMemoryError("out of memory: reduce n_ctx or n_parallel, or choose a smaller model"),
        ),
        (ModelError(Path("a")), ModelError("a")),
        (ModelError("\ud800"), ModelError("\\ud800")),
    ],
)
def test_errors_come_back_as_the_nearest_of_pumice(error, expected):
    (failed,) = decode_events(*encode_events([msg.Failed(1, error)]))
    assert (type(failed.error), str(failed.error)) == (type(expected), str(expected))
    assert str(codec.portable(error)) == str(expected)


@pytest.mark.parametrize(
    "fault",
    [["os", ["a"]], ["Path", ["a"]], ["PromptTooLongError", ["a"]], ["PumiceError", [["a"]]], ["a", []], "a", None, []],
)
def test_errors_of_no_class_are_refused(fault):
    data = msgspec.msgpack.encode(["StepEvents", [["Failed", 1, fault]]])
    with pytest.raises(CodecError):
        decode_events(data)


@pytest.mark.parametrize(
    "event",
    [
        ["Encoded", 1, [[[2, 3], b"abc"]]],
        ["Encoded", 1, [[[2**62, 4], b""]]],
        ["Encoded", 1, [[[1, 1, 1, 1, 1], bytes(4)]]],
        ["Progress", 1, -1, 5, 0, 0.0],
        ["Progress", -1, 1, 5, 0, 0.0],
        ["Output", 1, [-1], ["a"]],
        ["Output", 1, [2**40], ["a"]],
        ["Output", 1, [1], ["a"], None, 5],
        ["Finished", 1, "", "stop", {"queue_seconds": math.nan}],
        ["Finished", 1, "", "stop", {"queue_seconds": math.inf}],
        ["Finished", 1, "", "bored", {}],
        ["Add", [1], {}],
        ["StepEvents", []],
        [],
        {},
    ],
)
def test_events_of_wrong_values_are_refused(event):
    with pytest.raises(CodecError):
        decode_events(msgspec.msgpack.encode(["StepEvents", [event]]))


def test_deep_nesting_is_refused():
    data = COMMANDS.encode(msg.Add([1], msg.Request([1], sampling={"a": "X"})))
    deep = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(CodecError):
        COMMANDS.decode(data.replace(b"\xa1X", deep))


def test_random_and_mutated_bytes_are_messages_or_one_error():
    rng = random.Random(5)
    good = [*encode_events(EVENTS), *map(encode_command, COMMANDS_OF_EACH_KIND)]
    for number in range(6000):
        data = bytearray(rng.choice(good) if number % 6 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(data) + 1)
            data[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data
        for kind in (REPORTS, COMMANDS):
            with contextlib.suppress(CodecError):
                kind.decode(data)


def test_values_of_samplers_that_are_no_plain_data_are_named():
    class Odd:
        pass

    for value in (Odd(), {1, 2}, [Odd()], {"a": Odd()}, len, np.arange(3)):
        with pytest.raises(pumice.RequestError, match=r"own: a .* cannot be sent to the engine's process"):
            encode_command(msg.Add([1], msg.Request([1], sampling={"own": value})))
    for value, found in ((np.float32(0.5), 0.5), ((1, 2), [1, 2])):
        add = COMMANDS.decode(encode_command(msg.Add([1], msg.Request([1], sampling={"own": value}))))
        assert add.request.sampling == {"own": found}
    with pytest.raises(pumice.RequestError, match="max_tokens must be a number of at most 64 bits"):
        msg.Request([1], max_tokens=2**70)
    with pytest.raises(pumice.RequestError, match="cannot be sent"):
        encode_command(msg.Add([1], msg.Request([1], stop=["\ud800"])))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(pumice.RequestError, match="cannot be sent"):
        encode_command(msg.Add([1], msg.Request([1], sampling={"own": deep})))


def test_invalid_utf8_is_refused():
    (data,) = encode_events([msg.Output(1, [1], ["abcd"])])
    with pytest.raises(CodecError):
        decode_events(data.replace(b"abcd", b"\xff\xfe\x80\x80"))


def test_a_command_may_not_be_endless(monkeypatch):
    monkeypatch.setattr(codec, "MAX_COMMAND_BYTES", 1000)
    with pytest.raises(pumice.RequestError, match="the limit is 1000"):
        encode_command(msg.Add([1], msg.Request([5] * 2000)))
    rows = Embeddings(np.zeros((8, 64), np.float32))
    assert encode_command(msg.Add([1], msg.Request([5] * 8, media=[rows])), rows.nbytes)
    with pytest.raises(pumice.RequestError, match="the limit is 2000"):
        encode_command(msg.Add([1], msg.Request([5] * 8, media=[rows])), 1000)
