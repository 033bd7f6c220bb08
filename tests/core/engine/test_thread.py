"""The engine's thread: who leaves frees what they held, who closes ends everything, and messages cross a pipe."""

import asyncio
import gc
import multiprocessing
import os
import threading

import pytest

import pumice
from pumice.errors import EngineError, ModelClosedError, PromptTooLongError
from waiting import PATIENCE, wait_until

EXACT = {"backend": "numpy", "kv_type": "f32"}
GREEDY = {"temperature": 0.0, "max_tokens": 20}
ENDLESS = {"temperature": 0.0, "max_tokens": None, "ignore_eos": True, "context_shift": True}


@pytest.fixture
def model(path):
    with pumice.load(path, **EXACT) as loaded:
        yield loaded


def idle(model) -> bool:
    now = model.engine.snapshot()
    return now.n_running + now.n_waiting == 0 and now.n_slots_free == now.n_slots and now.n_blocks_free == now.n_blocks


def test_a_dropped_stream_cancels(model):
    streams = [model.stream("a", **ENDLESS) for _ in range(6)]
    next(streams[0])
    del streams
    gc.collect()
    wait_until(lambda: idle(model))


def test_one_bad_prompt_leaves_nothing_running(model):
    with pytest.raises(PromptTooLongError, match="prompt 2: the prompt has 300 tokens") as caught:
        model.generate_many(["a", "b", [5] * 300], **ENDLESS)
    assert (caught.value.prompt_index, caught.value.n_prompt_tokens, caught.value.n_ctx) == (2, 300, model.n_ctx)
    wait_until(lambda: idle(model))


def test_a_model_that_nobody_uses_is_closed(path):
    before = threading.active_count()
    stream = pumice.load(path, **EXACT).stream("a", **GREEDY)
    gc.collect()
    assert len(stream.completion().tokens) == 20, "a stream keeps its model"
    del stream
    gc.collect()
    wait_until(lambda: threading.active_count() <= before)


def test_a_failure_in_the_engine_itself_reaches_who_waits(model, monkeypatch):
    stream = model.stream("a", **ENDLESS)
    next(stream)
    monkeypatch.setattr("pumice.engine.loop.scheduler.Scheduler.choose", None)
    with pytest.raises(TypeError):
        stream.completion()
    with pytest.raises((TypeError, ModelClosedError)):  # the second, if it is noticed before the end
        model.generate("a")


def test_a_panic_in_a_step_is_an_error_of_its_requests(model, monkeypatch):
    class Panic(BaseException):
        """What libraries in Rust raise when they panic."""

    def panic(self):
        raise Panic("index out of bounds")

    stream = model.stream("a", **ENDLESS)
    next(stream)
    with monkeypatch.context() as patched:
        patched.setattr("pumice.engine.loop.scheduler.Scheduler.choose", panic)
        with pytest.raises(EngineError, match="the engine failed: Panic: index out of bounds"):
            stream.completion()
    assert len(model.generate("a", **GREEDY).tokens) == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_gets_an_error_or_its_own_model(path, backend):
    def child(queue):
        calls = (lambda: model.generate("a"), lambda: next(stream), lambda: model.logits([1]))
        for use in (*calls, model.engine.snapshot):
            try:
                use()
            except ModelClosedError as error:
                queue.put(str(error))
        model.close()
        with pumice.load(path, backend=backend, kv_type="f32") as own:
            queue.put(own.generate("a", **GREEDY).tokens)

    with pumice.load(path, backend=backend, kv_type="f32", config={"cpu": {"threads": 2}}) as model:
        stream = model.stream("a", **GREEDY)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,), daemon=True)
        process.start()
        answers = [queue.get(timeout=PATIENCE) for _ in range(5)]
        process.join(PATIENCE)
        assert process.exitcode == 0
        assert all("fork" in answer for answer in answers[:4])
        assert answers[4] == stream.completion().tokens


def test_coroutines(model):
    async def main():
        pieces = [piece async for piece in model.astream("a", **GREEDY)]
        completions = await asyncio.gather(*(model.agenerate("a", **GREEDY) for _ in range(6)))
        async for _ in model.astream("a", **ENDLESS):
            break
        endless = asyncio.create_task(model.agenerate("a", **ENDLESS))
        await asyncio.sleep(0.05)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return pieces, completions

    pieces, completions = asyncio.run(main())
    expected = model.generate("a", **GREEDY)
    assert [piece.token for piece in pieces[:-1]] == expected.tokens
    assert "".join(piece.text for piece in pieces) == expected.text
    assert [each.tokens for each in completions] == [expected.tokens] * 6
    wait_until(lambda: idle(model))
