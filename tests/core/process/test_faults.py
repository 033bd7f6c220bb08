"""An engine's process that is killed, or stopped, at any of its messages: what was asked for ends, and ends right."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import pumice
import pumice.process.confinement
import pumice.process.engine
from nightly import variants
from pumice.engine.messages import Score
from pumice.sandbox import Launch

EXACT = {"backend": "numpy", "kv_type": "f32", "n_batch": 16, "config": {"numpy": {"batch_invariant": True}}}
GREEDY = {"temperature": 0.0, "max_tokens": 12}

SHIM = """
import os, subprocess, sys
from pumice.isolation import wire
from pumice.process import frames, worker

NULL = subprocess.DEVNULL
left = {{"read": {read}, "write": {write}}}

def count(way):
    left[way] -= 1
    if left[way] == 0:
        if {resumed}:
            again = f"while sleep 0.3 && kill -CONT {{os.getpid()}}; do :; done"  # the first may come before the stop
            subprocess.Popen(["sh", "-c", again], stdin=NULL, stdout=NULL, stderr=NULL)
        os.kill(os.getpid(), {number})

def read_frame(stream, most):
    data = wire.read_frame(stream, most)
    count("read")
    return data

def write_frame(stream, data):
    wire.write_frame(stream, data)
    count("write")

frames.read_frame, worker.write_frame = read_frame, write_frame
sys.exit(worker.main())
"""


@pytest.fixture(scope="module")
def other(path) -> Iterator[pumice.Model]:
    with pumice.load_process(path, **EXACT) as model:
        yield model


def asked_of(model: pumice.Model) -> list[Callable[[], Any]]:
    """Prompts that are read in steps, streams, a cancellation, scores and questions, all begun."""
    streams = [model.stream([5 + number] * 40, **GREEDY) for number in range(2)]
    cancelled = model.stream([9] * 40, **{**GREEDY, "max_tokens": 100})
    cancelled.close()
    scored = model.engine.client.ask(Score, [5, 6, 7, 8], 1)
    asked = model.engine.client.inspect()
    return [
        *(lambda stream=stream: stream.completion().tokens for stream in streams),
        lambda: scored.result(60),
        lambda: asked.result(60).n_slots,
    ]


@pytest.fixture(scope="module")
def expected(other) -> list[Any]:
    return [answer() for answer in asked_of(other)]


@pytest.fixture
def faulty(path, monkeypatch) -> Callable[..., pumice.Model]:
    """Loads a model whose process gets a signal at its so manieth message."""

    def load(way: str, number: int, sent: signal.Signals, resumed: bool = False) -> pumice.Model:
        code = SHIM.format(**{"read": 0, "write": 0, way: number}, number=int(sent), resumed=resumed)
        launched = Launch([sys.executable, "-P", "-c", code], dict(os.environ))
        monkeypatch.setattr(pumice.process.confinement, "launch_engine", lambda order: launched)
        return pumice.load_process(path, **EXACT)

    return load


AT = [("read", 1), ("read", 3), ("read", 6), ("write", 1), ("write", 4), ("write", 9), ("write", 14)]
LONGER = [*AT[2::2], ("read", 2), ("read", 5), ("write", 2), ("write", 12)]


@pytest.mark.parametrize(("way", "number"), variants(AT, [("read", 6), ("write", 9)]))
def test_a_killed_engine_gives_right_answers_or_an_error(faulty, expected, other, way, number):
    try:
        model = faulty(way, number, signal.SIGKILL)
    except pumice.EngineDiedError:
        return
    answers: list[Callable[[], Any]] = []
    with suppress(pumice.EngineDiedError):
        answers = asked_of(model)
    for answer, right in zip(answers, expected, strict=False):
        with suppress(pumice.EngineDiedError):
            assert answer() == right
    model.close()
    assert model.engine.link._child.poll() is not None
    assert other.generate([5] * 40, **GREEDY).tokens == expected[0]
    assert not model.engine.client._listeners


@pytest.mark.parametrize(("way", "number"), variants(LONGER, [("read", 6), ("write", 14)]))
def test_a_stopped_engine_goes_on_where_it_was(faulty, expected, way, number):
    with faulty(way, number, signal.SIGSTOP, resumed=True) as model:
        assert [answer() for answer in asked_of(model)] == expected


def test_an_engine_that_is_stopped_while_it_loads_is_killed(faulty, monkeypatch):
    monkeypatch.setattr(pumice.process.engine, "_SILENCE_SECONDS", 0.1)
    with pytest.raises(pumice.EngineError, match=r"gave no sign of life for 1\.2 seconds"):
        faulty("write", 1, signal.SIGSTOP)


def test_a_stopped_engine_can_be_closed(faulty, monkeypatch):
    monkeypatch.setattr(pumice.process.engine, "_CLOSE_SECONDS", 0.5)
    model = faulty("read", 3, signal.SIGSTOP)
    stream = model.stream([5] * 40, **GREEDY)
    scored = model.engine.client.ask(Score, [5, 6, 7, 8], 1)
    model.close()
    assert model.engine.link._child.poll() == -signal.SIGKILL
    with pytest.raises(pumice.ModelClosedError):
        stream.completion()
    with pytest.raises(pumice.ModelClosedError):
        scored.result(60)


ORPHANING = """
import sys
import pumice

model = pumice.load_process(sys.argv[1], backend="numpy", kv_type="f32", n_ctx=256)
streams = [model.stream([5], temperature=0.0, max_tokens=200, ignore_eos=True) for _ in range(3)]
next(iter(streams[0]))
print("generating", flush=True)
for piece in streams[1]:
    pass
"""


def test_an_engine_whose_parent_is_killed_ends_without_a_word(path):
    command = [sys.executable, "-c", ORPHANING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "generating\n"
        parent.kill()
        _, errors = parent.communicate(timeout=60)  # ends with the engine, which has the same standard error
    assert errors == ""
