"""Messages as bytes: each comes back as it was, and bytes that are none are one error."""

import contextlib
import math
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from pumice.cache_tiers import Tally
from pumice.config import load_config
from pumice.engine.messages import (
    Accepted,
    Add,
    Cancel,
    Close,
    Encode,
    Encoded,
    EncodeImage,
    Facts,
    Failed,
    Finished,
    Inspect,
    Inspected,
    Logprobs,
    Output,
    Progress,
    PromptSaved,
    Request,
    SavePrompt,
    Score,
    Scored,
    Snapshot,
    Span,
    Timings,
)
from pumice.errors import ModelError
from pumice.grammar import Grammar
from pumice.process import codec
from pumice.process.codec import COMMANDS, REPORTS, CodecError, decode_events, encode_command, encode_events

SNAPSHOT = Snapshot(1, 2, 3, 1, {0: 10, 512: 4}, {0: 3, 512: 4}, 99, {"ram": Tally(1 << 33, 2, 3)})
TIMINGS = Timings(5, 4, 0.1, 0.2, 3, 0.3)
EVENTS = [
    Accepted(0),
    Progress(2**62, 1, 2, 0, 0.5),
    Output(1, [5, 6], ["a", "é😀"]),
    Output(1, [5], ["a"], [Logprobs(-0.5, [(5, -0.5), (6, -math.inf)])]),
    Finished(1, "rest", "stop", TIMINGS),
    Inspected(2, SNAPSHOT),
    Scored(3, [Logprobs(-1.0, [])]),
    PromptSaved(4, 64),
]
REQUEST = Request(
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
    Add([1], REQUEST),
    Encode(1, [[1, 2], []], "mean", True, [0.5], [[], []]),
    EncodeImage(1, 1, 2, b"pixels"),
    Score(1, [1, 2], 3, [0.5], "salt"),
    SavePrompt(1, [1, 2], [0.5], "salt"),
    Cancel(1),
    Inspect(1),
    Close(),
]


@pytest.mark.parametrize("command", COMMANDS_OF_EACH_KIND, ids=lambda each: type(each).__name__)
def test_commands_come_back(command):
    assert COMMANDS.decode(encode_command(command)) == command


def test_events_come_back():
    (data,) = encode_events(EVENTS)
    assert decode_events(data) == EVENTS


def test_arrays_come_back():
    values = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4), np.float32), np.float32([np.nan, np.inf])]
    (encoded,) = decode_events(*encode_events([Encoded(1, values)]))
    for value, found in zip(values, encoded.values, strict=True):
        assert np.array_equal(value, found, equal_nan=True)
        assert found.dtype == np.float32
        assert found.flags.writeable


def test_messages_of_loading_come_back():
    config = load_config({"n_ctx": 77, "sampling": {"seed": 5}, "cpu": {"threads": 1}})
    path = Path("/models/\udcff.gguf")  # a name that is no UTF-8
    load = COMMANDS.decode(COMMANDS.encode(codec.Load(path, config, "name", "serve", 20)))
    assert (load.path, load.config) == (path, config)
    assert load.config.source("n_ctx") == "arguments"
    assert load.config.is_default("n_batch")
    facts = Facts(512, 512, 100, ["cpu"], {"weights": 5})
    assert REPORTS.decode(REPORTS.encode(codec.Loaded(facts))).facts == facts


def test_a_configuration_without_layers_is_refused():
    empty = msgspec.msgpack.encode(["Load", b"/a.gguf", [], "name", "serve", 20])
    with pytest.raises(CodecError, match="a configuration has no layers"):
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
    (failed,) = decode_events(*encode_events([Failed(1, error)]))
    assert (type(failed.error), str(failed.error)) == (type(expected), str(expected))
    assert str(codec.portable(error)) == str(expected)


def test_an_error_knows_its_prompt():
    error = pumice.RequestError("no")
    error.prompt_index = 3
    (failed,) = decode_events(*encode_events([Failed(1, error)]))
    assert str(failed.error) == "prompt 3: no"


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


def test_invalid_utf8_is_refused():
    (data,) = encode_events([Output(1, [1], ["abcd"])])
    with pytest.raises(CodecError):
        decode_events(data.replace(b"abcd", b"\xff\xfe\x80\x80"))


def test_deep_nesting_is_refused():
    data = COMMANDS.encode(Add([1], Request([1], sampling={"a": "X"})))
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


def test_large_steps_are_parted(monkeypatch):
    monkeypatch.setattr(codec, "MAX_BYTES", 2000)
    logprobs = [Logprobs(-0.5, [(token, -0.5) for token in range(50)])] * 8
    events = [Accepted(1), Output(2, [*range(8)], [*"abcdefgh"], logprobs), *(Accepted(id) for id in range(3, 900))]
    parts = list(encode_events(events))
    assert max(map(len, parts)) <= 2000
    outputs = [event for data in parts for event in decode_events(data) if isinstance(event, Output)]
    assert [token for each in outputs for token in each.tokens] == [*range(8)]
    assert "".join(text for each in outputs for text in each.texts) == "abcdefgh"
    assert [one for each in outputs for one in each.logprobs] == logprobs
    assert sum(len(decode_events(data)) for data in parts) - len(outputs) == 898


def test_values_of_samplers_that_are_no_plain_data_are_named():
    class Odd:
        pass

    for value in (Odd(), {1, 2}, [Odd()], {"a": Odd()}, len, np.arange(3)):
        with pytest.raises(pumice.RequestError, match=r"own: a .* cannot be sent to the engine's process"):
            encode_command(Add([1], Request([1], sampling={"own": value})))
    for value, found in ((np.float32(0.5), 0.5), ((1, 2), [1, 2])):
        add = COMMANDS.decode(encode_command(Add([1], Request([1], sampling={"own": value}))))
        assert add.request.sampling == {"own": found}
    with pytest.raises(pumice.RequestError, match="max_tokens must be a number of at most 64 bits"):
        Request([1], max_tokens=2**70)
    with pytest.raises(pumice.RequestError, match="cannot be sent"):
        encode_command(Add([1], Request([1], stop=["\ud800"])))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(pumice.RequestError, match="cannot be sent"):
        encode_command(Add([1], Request([1], sampling={"own": deep})))


def test_a_command_may_not_be_endless(monkeypatch):
    monkeypatch.setattr(codec, "MAX_COMMAND_BYTES", 1000)
    with pytest.raises(pumice.RequestError, match="the limit is 1000"):
        encode_command(Add([1], Request([5] * 2000)))


def test_rows_of_images_may_have_the_size_of_a_context(monkeypatch):
    monkeypatch.setattr(codec, "MAX_COMMAND_BYTES", 1000)
    command = Add([1], Request([0] * 4, media=[Span(0, np.zeros((4, 256), np.float32))]))
    assert COMMANDS.decode(codec.encode_aside(command, 4096)()).request.media[0].rows.shape == (4, 256)
    with pytest.raises(pumice.RequestError, match="the limit is 4000"):
        codec.encode_aside(command, 3000)
    assert Facts(4, 4, 1, [], {}, media_width=256).media_bytes == 4096
    assert Facts(1 << 20, 1, 1, [], {}, media_width=1 << 14).media_bytes == 2 << 30


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.one_of(st.integers(), st.text(max_size=2), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=2), st.one_of(st.integers(), st.floats()), max_size=2),
    st.just(np.int64(3)),
    st.just(object()),
    st.just(Grammar(5, 7)),
)
FIELDS = [field for field in Request.__dataclass_fields__ if field != "prompt"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FIELDS), ODD)
def test_a_request_that_can_be_sent_can_be_read(name, value):
    """A wrong argument must be an error of the sender: over there it would be the end of the engine."""
    try:
        data = encode_command(Add([1], Request([1], **{name: value})))
    except pumice.RequestError:
        return
    COMMANDS.decode(data)
