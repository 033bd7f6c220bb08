"""Errors of the public interface have short tracebacks, except with PUMICE_DEBUG=1."""

import asyncio
import inspect
import traceback
from collections.abc import Callable

import pytest

import pumice
from pumice.tracebacks import short_traceback


def frames_of(call: Callable[[], object]) -> list[str]:
    with pytest.raises(pumice.PumiceError) as caught:
        call()
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, KeyError)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][2:]


@pytest.fixture(scope="module")
def model():
    with pumice.load(backend="numpy", n_ctx=64) as model:
        yield model


CALLS = [
    lambda model: model.generate("a", temprature=1),
    lambda model: model.stream("a", top_k="a"),
    lambda model: model.chat([{"role": "user", "content": 1}]),
    lambda model: asyncio.run(model.agenerate("a", temprature=1)),
    lambda model: model.embed(["a" * 10_000]),
    lambda model: pumice.load("absent.gguf"),
]


@pytest.mark.parametrize("call", CALLS)
def test_an_error_ends_where_it_was_called(model, call, monkeypatch):
    monkeypatch.delenv("PUMICE_DEBUG", raising=False)
    frames = [name for name in frames_of(lambda: call(model)) if name not in ("run", "run_until_complete", "result")]
    assert frames[-2:] in (["calling", "_raise_short"], ["awaiting", "_raise_short"])
    monkeypatch.setenv("PUMICE_DEBUG", "1")
    assert len(frames_of(lambda: call(model))) > len(frames) + 1


def test_a_cause_stays():
    @short_traceback
    def fail() -> None:
        raise pumice.RequestError("a") from KeyError("b")

    with pytest.raises(pumice.RequestError) as caught:
        fail()
    assert isinstance(caught.value.__cause__, KeyError)


def test_signature_and_help_stay():
    assert "temperature" in inspect.signature(pumice.Model.generate).parameters
    assert "temperature" in (pumice.Model.generate.__doc__ or "")
