"""A model in a process of its own: the same text, and whatever happens to that process happens to it alone."""

import asyncio
import os
import signal

import pytest

import pumice
from waiting import gone, wait_until

# The same bits, whichever sequences happen to be in a step together.
EXACT = {"backend": "numpy", "kv_type": "f32", "config": {"numpy": {"batch_invariant": True}}}
GREEDY = {"temperature": 0.0, "max_tokens": 20}
ENDLESS = {"temperature": 0.0, "max_tokens": None, "ignore_eos": True, "context_shift": True}


@pytest.fixture(scope="module")
def shared(path):
    with pumice.load_process(path, **EXACT) as model:
        yield model


@pytest.fixture
def model(path):
    with pumice.load_process(path, **EXACT) as model:
        yield model


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_the_same_text_as_in_this_process(path, shared):
    with pumice.load(path, **EXACT) as here:
        assert (here.facts, list(here.metadata)) == (shared.facts, list(shared.metadata))
        options = {**GREEDY, "logprobs": 2, "n": 2}
        expected, found = here.generate("ab", **options), shared.generate("ab", **options)
    assert [(each.text, each.tokens, each.logprobs) for each in found] == [
        (each.text, each.tokens, each.logprobs) for each in expected
    ]


def test_refusals_are_the_same_errors(shared):
    with pytest.raises(pumice.PromptTooLongError, match="the prompt has 999 tokens"):
        shared.generate([5] * 999)
    with pytest.raises(pumice.RequestError, match="Invalid type: hiccup"):
        shared.generate("a", json_schema={"type": "hiccup"})


def test_streams_of_coroutines_know_when_they_are_accepted(shared):
    async def ask():
        with pytest.raises(pumice.PromptTooLongError):
            await shared.astream([5] * 999).accepted()
        stream = shared.astream("a", **GREEDY)
        await stream.accepted()
        return await stream.completion()

    assert len(asyncio.run(ask()).tokens) == 20


def test_prompt_progress_is_reported(path):
    """And what a stream tells of its time before its end."""
    seen = []
    with pumice.load_process(path, n_batch=16, **EXACT) as model:
        with model.stream([5] * 40, progress=lambda *read: seen.append(read), max_tokens=20) as stream:
            next(stream)
            times = stream.timings
            assert (times.prompt_tokens, times.prompt_cached) == (40, 0)
            assert times.generated_tokens >= 1
            assert times.prompt_seconds > 0
        assert seen == [(0, 40), (16, 40), (32, 40), (40, 40)]
        again = model.stream([5] * 40, progress=lambda *read: seen.append(read), max_tokens=1)
        cached = again.completion().timings.prompt_cached
    assert seen[4:] == [(cached, 40), (40, 40)]
    assert cached == 39


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "ended by SIGKILL; was there too little memory"),
        (signal.SIGBUS, "ended by SIGBUS; was the model's file cut short"),
    ],
)
def test_a_killed_engine_fails_its_streams_and_leaves_nothing(path, number, reason):
    before = open_files()
    with pumice.load_process(path, **EXACT) as model:
        stream = model.stream("a", **ENDLESS)
        next(stream)
        os.kill(model.engine.link.pid, number)
        with pytest.raises(pumice.EngineDiedError, match=reason):
            stream.completion()
        with pytest.raises(pumice.EngineDiedError):
            model.generate("a")
        assert isinstance(model.engine.error, pumice.EngineDiedError)
    assert gone(model.engine.link.pid)
    wait_until(lambda: open_files() <= before)


def test_too_little_memory_is_an_error_of_the_request(model):
    """The process may have no more memory than it has; it goes on, or it ends, but it says so."""
    resource = pytest.importorskip("resource")
    model.generate("a", max_tokens=1)
    with open(f"/proc/{model.engine.link.pid}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(model.engine.link.pid, resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
    with pytest.raises(pumice.EngineError):
        model.generate([5] * 4_000_000)


def test_a_limit_of_memory_that_a_load_exceeds_is_told_with_its_unit(path):
    with pytest.raises(pumice.OutOfMemoryError, match=r"\(memory_limit is 512\.0 MiB\)"):
        pumice.load_process(path, memory_limit="512MiB", n_ctx=10**8, **EXACT)


def test_closing_ends_streams_and_the_process(path):
    model = pumice.load_process(path, **EXACT)
    stream = model.stream("a", **ENDLESS)
    next(stream)
    model.close()
    assert stream.completion().finish_reason == "cancelled"
    assert gone(model.engine.link.pid)
    with pytest.raises(pumice.ModelClosedError):
        model.generate("a")


def test_a_model_that_cannot_be_loaded(tmp_path, path):
    with pytest.raises(pumice.BackendError, match="no-such"):
        pumice.load_process(path, backend="no-such")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(pumice.GGUFError):
        pumice.load_process(tmp_path / "bad.gguf")
