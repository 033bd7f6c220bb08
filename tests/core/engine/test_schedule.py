"""Order of sequences: none starves, prompts delay no other for long, and a sequence without room waits."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest

from gguf_files import tiny_llama
from pumice.config import load_config
from pumice.engine import Request, Runner
from pumice.engine.loop.policy import FairPolicy
from pumice.errors import RequestTimeoutError
from pumice.local_engine import load_model
from tiny_zoo import ZOO
from waiting import PATIENCE

EXACT = {"backend": "numpy", "kv_type": "f32"}
GREEDY = {"temperature": 0.0, "max_tokens": 20}
ENDLESS = {"temperature": 0.0, "max_tokens": None, "ignore_eos": True, "context_shift": True}


def load(path, policy=None, **settings):
    return load_model(path, load_config({**EXACT, **settings}), policy=policy)


@pytest.fixture
def batches(monkeypatch):
    """The number of tokens of each sequence of each step."""
    seen, submit = [], Runner.submit

    def record(runner, batch, *more, **options):
        seen.append((batch.seq_starts[1:] - batch.seq_starts[:-1]).tolist())
        return submit(runner, batch, *more, **options)

    monkeypatch.setattr(Runner, "submit", record)
    return seen


@pytest.mark.parametrize(("n_ctx", "n_parallel"), [(128, 4), (256, 1)], ids=["no blocks", "no slot"])
def test_a_sequence_without_end_gives_way(path, n_ctx, n_parallel):
    with load(path, FairPolicy(quantum=20), n_ctx=n_ctx, n_parallel=n_parallel) as model:
        prompt = [5 + i % 200 for i in range(100)]
        expected = model.generate(prompt, **GREEDY).tokens
        endless = model.stream("a", **ENDLESS)
        for _ in range(n_ctx - 10):
            next(endless)
        assert model.generate(prompt, **GREEDY).tokens == expected
        before = len(list(zip(range(50), endless, strict=False)))
        assert before == 50, "it goes on"


def test_a_prompt_is_read_in_parts_while_others_generate(tmp_path, batches):
    path = tiny_llama(tmp_path / "tiny.gguf", n_ctx=8192)  # room for both, however much is generated before
    with load(path, prefill_tokens=10) as model:
        stream = model.stream("a", **ENDLESS)
        next(stream)
        alone = len(batches)
        model.generate([5] * 100, max_tokens=1)
    reading = [max(batch) for batch in batches[alone:] if max(batch) > 1]
    assert reading == [10] * 10
    assert all(1 in batch for batch in batches[alone:])


@contextmanager
def held(model):
    """The engine does nothing meanwhile, so that what is sent comes to it at once."""
    holds, go = threading.Event(), threading.Event()

    def turns(engine):
        holds.set()
        assert go.wait(PATIENCE)
        yield

    thread = threading.Thread(target=model.engine.thread.call, args=[turns])
    thread.start()
    assert holds.wait(PATIENCE)
    yield
    go.set()
    thread.join(PATIENCE)


def test_higher_priorities_come_first(path):
    order, done = [], threading.Semaphore(0)
    with load(path, FairPolicy(patience=1e9), n_parallel=1) as model:
        first = model.stream("a", **ENDLESS)
        next(first)

        def finish(name):
            def listen(event):
                if type(event).__name__ == "Finished":
                    order.append(name)
                    done.release()

            return listen

        with held(model):
            for name, priority in (("low", -1), ("high", 2), ("higher", 3)):
                model.engine.client.add(Request([5, 6], 40, {"temperature": 0.0}, priority=priority), finish(name))
        for _ in range(2):
            assert done.acquire(timeout=PATIENCE)
        first.close()
        assert done.acquire(timeout=PATIENCE)
    assert order == ["higher", "high", "low"]


@pytest.mark.parametrize(("patience", "comes"), [(50, True), (1e9, False)])
@pytest.mark.parametrize("n_parallel", [1, 2], ids=["no slot", "no blocks"])
def test_a_long_wait_overrides_priority(path, patience, comes, n_parallel):
    prompt = [5 + i % 200 for i in range(100)]
    with load(path, FairPolicy(quantum=10, patience=patience), n_ctx=128, n_parallel=n_parallel) as model:
        expected = model.generate(prompt, **GREEDY).tokens
        highs = [model.stream("a", priority=2, **ENDLESS) for _ in range(2)]
        for high in highs:
            next(high)
        low = model.stream(prompt, priority=-1, timeout=None if comes else 0.5, **GREEDY)
        assert low.completion().tokens == (expected if comes else [])
        assert len(list(zip(range(50), highs[0], strict=False))) == 50, "they go on"


@pytest.mark.parametrize(("patience", "comes"), [(50, True), (1e9, False)])
def test_an_embedding_waits_for_a_higher_priority_that_holds_a_state(tmp_path, patience, comes):
    path = ZOO["mamba"].write(tmp_path / "mamba.gguf")
    with load(path, FairPolicy(quantum=10, patience=patience), n_ctx=128, n_parallel=1) as model:
        high = model.stream([5], priority=2, **{**ENDLESS, "ignore_eos": False})
        next(high)
        with nullcontext() if comes else pytest.raises(RequestTimeoutError):
            model.embed([[5, 6]], timeout=None if comes else 0.5)
        assert len(list(zip(range(50), high, strict=False))) == 50, "it goes on"


def test_time_runs_out_for_who_waits_and_who_generates(path):
    with load(path, FairPolicy(quantum=1e9), n_parallel=1) as model:
        running = model.stream("a", **ENDLESS)
        next(running)
        waiting = model.generate("b", timeout=0.1, **ENDLESS)
        assert (waiting.finish_reason, waiting.tokens) == ("timeout", [])
        assert waiting.timings.queue_seconds >= 0.1
        running.close()
        for seconds in (0.2, 2.0, 20.0):  # more, where it could not begin
            running = model.generate("a", timeout=seconds, **ENDLESS)
            assert running.finish_reason == "timeout"
            if running.tokens:
                break
        assert running.tokens


def test_a_request_that_waits_for_the_cache_says_so(path, caplog):
    prompt = [5 + i % 200 for i in range(100)]
    with load(path, n_ctx=128, n_parallel=4) as model:
        streams = [model.stream(prompt[i:], **GREEDY) for i in range(3)]
        assert [stream.completion().timings.generated_tokens for stream in streams] == [GREEDY["max_tokens"]] * 3
        assert streams[2].timings.queue_seconds > streams[0].timings.queue_seconds
        assert model.engine.snapshot().n_lacked >= 2
    assert [line for line in caplog.messages if "waits for others: the key/value cache has no room" in line]


def test_many_texts_leave_a_generation_its_blocks(path):
    """Blocks come first to the sequence that is next, also where shorter ones of another kind would fit."""
    with load(path, FairPolicy(quantum=10), n_ctx=128, n_parallel=2) as model, ThreadPoolExecutor() as pool:
        texts = pool.submit(model.embed, [[1 + i % 60 for i in range(70)]] * 600)
        expected = model.generate([5, 6, 7], max_tokens=110, temperature=0)
        assert not texts.done()
        assert len(expected.tokens) == 110
        texts.result()
