"""The engine's thread: who leaves frees what they held, who closes ends everything, and messages cross a pipe."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import threading

import pytest

import pumice
from gguf_files import tiny_llama
from pumice.engine import EngineClient, Request, Runner
from pumice.engine.messages import Add, Failed, Finished, Output, Progress
from pumice.errors import ModelClosedError, PromptTooLongError
from pumice.streaming.stream import Stream
from waiting import PATIENCE, wait_until

EXACT = {"backend": "numpy", "kv_type": "f32"}
GREEDY = {"temperature": 0.0, "max_tokens": 20}
ENDLESS = {"temperature": 0.0, "max_tokens": None, "ignore_eos": True, "context_shift": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("thread") / "tiny.gguf")


@pytest.fixture
def model(path):
    with pumice.load(path, **EXACT) as loaded:
        yield loaded


def idle(model) -> bool:
    now = model.engine.snapshot()
    return now.n_running + now.n_waiting == 0 and now.n_slots_free == now.n_slots and now.n_blocks_free == now.n_blocks


def test_the_model_generates_while_nobody_reads(model):
    stream = model.stream("a", **GREEDY)
    wait_until(lambda: idle(model))
    assert len(stream.completion().tokens) == 20


def test_a_loop_that_is_left_cancels(model):
    for _ in model.stream("a", **ENDLESS):
        break
    wait_until(lambda: idle(model))


def test_a_loop_that_fails_cancels(model):
    with pytest.raises(ZeroDivisionError):
        sum(1 // len(piece.text[:0]) for piece in model.stream("a", **ENDLESS))
    wait_until(lambda: idle(model))


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


def test_errors_cross_a_pipe():
    error = PromptTooLongError(300, 256)
    error.prompt_index = 2
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_closing_ends_streams_as_cancelled(path):
    model = pumice.load(path, **EXACT)
    stream, reasons = model.stream("a", **ENDLESS), []
    next(stream)
    other = threading.Thread(target=lambda: reasons.append(model.generate("b", **ENDLESS).finish_reason))
    other.start()
    wait_until(lambda: model.engine.snapshot().n_running == 2)
    model.close()
    other.join(PATIENCE)
    assert stream.completion().finish_reason == "cancelled"
    assert reasons == ["cancelled"]


def test_a_closed_model_leaves_no_thread_and_no_file(path):
    before = threading.active_count()
    for _ in range(3):
        with pumice.load(path, backend="cpu", config={"cpu": {"threads": 4}}) as model:
            model.generate("a", **GREEDY)
        assert threading.active_count() <= before  # less, where one of a test before has just ended


def test_a_model_that_nobody_uses_is_closed(path):
    before = threading.active_count()
    stream = pumice.load(path, **EXACT).stream("a", **GREEDY)
    gc.collect()
    assert len(stream.completion().tokens) == 20, "a stream keeps its model"
    del stream
    gc.collect()
    wait_until(lambda: threading.active_count() <= before)


def test_a_load_that_fails_closes_what_it_opened(path, monkeypatch):
    before, closed = threading.active_count(), []

    def fail(runner):
        raise pumice.BackendError("no memory")

    monkeypatch.setattr(Runner, "compile", fail)
    monkeypatch.setattr("pumice_numpy.NumpyBackend.close", lambda backend: closed.append("backend"))
    monkeypatch.setattr("pumice.gguf.GGUFFile.close", lambda file: closed.append("file"))
    with pytest.raises(pumice.BackendError, match="no memory"):
        pumice.load(path, **EXACT)
    assert closed == ["backend", "file"]
    assert threading.active_count() <= before


def test_a_failure_in_the_engine_itself_reaches_who_waits(model, monkeypatch):
    stream = model.stream("a", **ENDLESS)
    next(stream)
    monkeypatch.setattr("pumice.engine.loop.scheduler.Scheduler.choose", None)
    with pytest.raises(TypeError):
        stream.completion()
    with pytest.raises((TypeError, ModelClosedError)):  # the second, if it is noticed before the end
        model.generate("a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_gets_an_error_or_its_own_model(path, backend):
    def child(queue):
        for use in (
            lambda: model.generate("a"),
            lambda: next(stream),
            lambda: model.logits([1]),
            model.engine.snapshot,
        ):
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


def test_logits_of_a_long_text_do_not_stop_a_stream(path):
    with pumice.load(path, n_batch=4, n_parallel=1, **EXACT) as model:
        expected = model.logits([7] * 200)
        stream = model.stream("a", **ENDLESS)
        next(stream)
        assert (model.logits([7] * 200) == expected).all()
        assert next(stream).token is not None


def received(pipe):
    while (message := pipe.recv()) is not None:
        yield message


def test_commands_and_events_cross_a_pipe(path):
    """A client here, the engine on the other side of a pipe that pickles; a refusal is an event."""
    here, there = multiprocessing.Pipe()
    with pumice.load(path, **EXACT) as model:
        expected = model.generate([5, 6, 7], **GREEDY)

        def answer():
            model.engine.thread.emit = there.send
            for command in received(there):
                try:
                    model.engine.thread.send(command)
                except pumice.PumiceError as error:
                    there.send([Failed(id, error) for id in command.ids])

        def listen():
            for events in received(here):
                client.receive(events)

        client = EngineClient(here.send)
        for loop in (answer, listen):
            threading.Thread(target=loop, daemon=True).start()
        found = Stream.open(client, Request([5, 6, 7], 20, {"temperature": 0.0}))[0].completion()
        assert (found.tokens, found.text, found.finish_reason) == (expected.tokens, expected.text, "length")
        with pytest.raises(PromptTooLongError):
            Stream.open(client, Request([5] * 300, 20))[0].completion()
        assert client.snapshot(timeout=PATIENCE).n_running == 0
        here.send(None)
        there.send(None)


def test_a_prompt_tells_how_far_it_was_read(path):
    with pumice.load(path, n_batch=8, **EXACT) as model:
        events = []
        done = threading.Event()

        def listen(event):
            events.append(event)
            if isinstance(event, Finished):
                done.set()

        model.engine.client.add(Request(list(range(5, 25)), 2), listen)
        assert done.wait(PATIENCE)
    assert [event.n_read for event in events if isinstance(event, Progress)] == [0, 8, 16, 20]
    assert {event.n_prompt for event in events if isinstance(event, Progress)} == {20}
    assert sum(len(event.tokens) for event in events if isinstance(event, Output)) == 2
    assert isinstance(events[-1], Finished)


def test_a_command_is_plain_data():
    command = Add([3], Request([1, 2], 5, {"temperature": 0.5}, stop=["x"]))
    assert pickle.loads(pickle.dumps(command)) == command
