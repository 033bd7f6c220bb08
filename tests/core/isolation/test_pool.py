"""Workers: what a call may take, what becomes of those that take more, and of everybody else meanwhile."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import pumice.isolation.pool
from pumice.errors import EngineError, RequestError, TooExpensiveError, UnavailableError
from pumice.isolation import CallLimits, WorkerPool, wire
from sandboxes import needs_sandbox
from waiting import PATIENCE, gone, hang, wait_until, waiting_for

PATIENT = CallLimits(cpu_seconds=60, wall_seconds=PATIENCE, wait_seconds=PATIENCE)
ECHO = "builtins:dict"
EVALUATE = "builtins:eval"
ENDLESS = "all(x == 0 for x in iter(int, 1))"
CLOCK = "__import__('time').process_time()"
TAKES = f"(lambda end: any(iter(lambda: {CLOCK} >= end, True)))({CLOCK} + {{seconds}})"
"""An expression of Python that is False, after some seconds of processor time."""


@pytest.fixture
def make():
    """Makes pools, and closes them."""
    pools = []

    def make(n_workers=1, **limits):
        pools.append(WorkerPool("the work", CallLimits(**{**vars(PATIENT), **limits}), n_workers))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_result_is_plain_data_of_the_type_that_is_asked_for(make):
    pool = make()
    payload = {"text": "ü\x00", "numbers": [1, -2.5, True, None, 2**64 - 1], "nested": {"a": [[]]}}
    assert pool.call(ECHO, payload, dict) == payload
    assert pool.call("builtins:len", [1, 2, 3], int) == 3
    with pytest.raises(EngineError, match=r"the work failed: the worker process returned an invalid result: .*`str`"):
        pool.call("builtins:len", [1, 2, 3], str)
    assert len(pool.pids) == 1


TRIAL = "__import__('pumice.sandbox.trial').sandbox.trial.run({files})"


@pytest.fixture
def files(tmp_path):
    """Files that no worker needs."""
    for name in ("model.gguf", "id_ed25519"):
        (tmp_path / name).write_text("x")
    return f"'{tmp_path}/model.gguf', '{tmp_path}/id_ed25519'"


@needs_sandbox
def test_a_worker_is_denied_everything(make, files, tmp_path):
    pool = make()
    assert set(pool.call(EVALUATE, TRIAL.format(files=files), dict).values()) == {"denied"}
    for attempt in (f"open('{tmp_path}/model.gguf').read()", f"open('{tmp_path}/new', 'w').close()"):
        with pytest.raises(EngineError, match="Permission denied"):
            pool.call(EVALUATE, attempt, str)


def test_arguments_other_than_plain_data_are_refused(make):
    with pytest.raises(RequestError, match="more than 64 bits"):
        make().call(ECHO, {"a": 1 << 64}, dict)
    with pytest.raises(RequestError, match="not plain data: object cannot be represented in JSON"):
        make().call(ECHO, {"a": object()}, dict)
    with pytest.raises(RequestError, match=r"not valid Unicode: .* contains a lone surrogate"):
        make().call(ECHO, {"a": "\ud800"}, dict)


def test_errors_of_a_task_are_raised_again(make):
    pool = make()
    with pytest.raises(RequestError, match=r"^once$"):
        pool.call(EVALUATE, "(_ for _ in ()).throw(__import__('pumice').RequestError('once'))", object)
    with pytest.raises(pumice.MediaError, match=r"^image: large$") as error:
        pool.call(EVALUATE, "(_ for _ in ()).throw(__import__('pumice').MediaError('image', 'large'))", object)
    error.value.name = "2 of 3"
    assert (str(error.value), error.value.kind) == ("image 2 of 3: large", "image")
    with pytest.raises(EngineError, match="the work failed: ZeroDivisionError: division by zero"):
        pool.call(EVALUATE, "1 / 0", object)
    assert pool.call(EVALUATE, "1 + 1", int) == 2


@pytest.mark.parametrize("name", ["pickle", "Exception", "PumiceError", "__doc__", "QueueFullError"])
def test_an_answer_makes_nothing_but_an_error(make, monkeypatch, name):
    forged = wire.encode(wire.TaskResult(error=name, arguments=["forged"]))
    monkeypatch.setattr(pumice.isolation.pool._Worker, "ask", lambda *_: forged)
    with pytest.raises(pumice.PumiceError):
        make().call(ECHO, {}, dict)
    for answer in (pickle.dumps({}), b"\x93\xc0\xa1\xff\xa0"):  # the second has a text that is not UTF-8
        monkeypatch.setattr(pumice.isolation.pool._Worker, "ask", lambda *_, answer=answer: answer)
        with pytest.raises(EngineError, match="returned an invalid result"):
            make().call(ECHO, {}, dict)


def test_too_much_time_memory_or_stack_costs_the_call_alone(make):
    pool = make(cpu_seconds=1, memory=512 << 20)
    with pytest.raises(TooExpensiveError, match="the work takes more than 1 seconds of processor time"):
        pool.call(EVALUATE, ENDLESS, bool)
    with pytest.raises(TooExpensiveError, match="the work takes more than 512 MiB of memory"):
        pool.call("builtins:bytearray", 1 << 30, bytes)
    for name in ("SIGSEGV", "SIGABRT"):
        with pytest.raises(TooExpensiveError, match=f"the work crashed \\({name}\\)"):
            pool.call("signal:raise_signal", int(getattr(signal, name)), object)
    for _ in range(4):  # seconds of one call are not the next one's
        assert pool.call(EVALUATE, TAKES.format(seconds=0.6), bool) is False


def test_payloads_and_results_are_bounded(make):
    pool = make(max_in=10_000, max_out=5_000, max_values=100)
    assert pool.call("builtins:len", "a" * 9_000, int) == 9_000
    assert pool.call("builtins:len", [[]] * 99, int) == 99
    with pytest.raises(TooExpensiveError, match="the work takes at most 10000 bytes, not 10003; send less"):
        pool.call("builtins:len", "a" * 10_000, int)
    with pytest.raises(TooExpensiveError, match="the work takes at most 100 values; send less"):
        pool.call("builtins:len", [[]] * 100, int)
    with pytest.raises(TooExpensiveError, match="the work returns 6003 bytes, but the limit is 5000"):
        pool.call("builtins:str", "a" * 6_000, str)


def test_a_worker_that_is_killed_is_replaced_and_asked_again(make, tmp_path, monkeypatch):
    monkeypatch.setenv("PUMICE_SANDBOX", "off")  # so that it may leave a mark
    pool = make()
    pool.call(ECHO, {}, dict)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert pool.call(ECHO, {}, dict) == {}
    mark = tmp_path / "mark"  # the first to come makes it, and is killed
    once = f"__import__('pathlib').Path({str(mark)!r}).mkdir() or __import__('signal').raise_signal(9)"
    with pytest.raises(EngineError, match="FileExistsError"):
        pool.call(EVALUATE, once, object)


def test_a_worker_that_is_stopped_costs_its_call_alone(make, monkeypatch):
    pool = make(n_workers=2)
    with ThreadPoolExecutor(2) as threads:
        while len(pool.pids) < 2:
            assert list(threads.map(lambda _: pool.call("time:sleep", 0.1, object), range(2))) == [None] * 2
        for worker in pool._workers:  # only now: their start takes its time, too
            monkeypatch.setattr(worker, "_limits", replace(worker._limits, wall_seconds=3.0))
        pool._watch._wake.set()  # it sleeps until a deadline of before
        hang(pool.pids[0])
        stopped = threads.submit(pool.call, ECHO, {}, dict)
        wait_until(lambda: any(worker.busy for worker in pool._workers))
        assert pool.call(ECHO, {"a": 1}, dict) == {"a": 1}
        assert not stopped.done()
        with pytest.raises(UnavailableError, match="the work: the worker process did not respond within 3 seconds"):
            stopped.result(PATIENCE)
    assert pool.call(ECHO, {"a": 1}, dict) == {"a": 1}


def test_an_interrupted_call_leaves_no_answer_to_the_next(make, monkeypatch):
    pool = make()
    pool.call(ECHO, {}, dict)
    with monkeypatch.context() as patch:
        patch.setattr(wire, "read_frame", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pool.call(ECHO, {"a": 1}, dict)
    assert pool.call(ECHO, {"b": 2}, dict) == {"b": 2}


def test_a_forked_process_has_workers_of_its_own(make):
    pool = make()
    pool.call(ECHO, {}, dict)
    here = pool.pids
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            pool.call(ECHO, {}, dict)
            os.write(writing, str(pool.pids[0]).encode())
            pool.close()
        finally:
            os._exit(0)
    os.close(writing)
    there = int(os.read(reading, 100))
    os.close(reading)
    os.waitpid(child, 0)
    assert [there] != here
    assert pool.call(ECHO, {}, dict) == {}
    assert pool.pids == here


@pytest.mark.parametrize("end", ["pass", "__import__('os')._exit(0)", "__import__('signal').raise_signal(9)"])
def test_no_worker_outlives_its_process(end):
    program = f"""if True:
        from pumice.isolation import WorkerPool
        pool = WorkerPool("the work", n_workers=1)
        pool.call("builtins:dict", {{}}, dict)
        print(*pool.pids, flush=True)
        {end}"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    pid = int(done.stdout)
    wait_until(lambda: gone(pid))


def test_a_closed_pool_ends_its_calls_and_starts_nothing(make):
    pool = make()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, "time:sleep", 100, object)
        wait_until(lambda: pool.pids)
        pool.close()
        with pytest.raises(UnavailableError, match="the work is not possible"):
            call.result(PATIENCE)
    assert pool.pids == []


def test_a_worker_knows_no_secrets(make, monkeypatch):
    monkeypatch.setenv("PUMICE_API_KEY", "secret")
    monkeypatch.setenv("TZ", "UTC")
    names = make().call(EVALUATE, "list(__import__('os').environ)", list)
    assert "TZ" in names
    assert "PUMICE_API_KEY" not in names


def test_an_answer_longer_than_it_may_be_is_not_read(make, monkeypatch):
    pool = make(max_out=1_000)
    monkeypatch.setattr(pumice.isolation.pool.msgspec.json, "encode", lambda limits: b"{}")  # a worker without limits
    with pytest.raises(TooExpensiveError, match="the work returns more than 1000 bytes"):
        pool.call("builtins:str", "a" * 2_000, str)


def test_workers_that_are_always_killed_or_do_not_start(make, monkeypatch):
    pool = make()
    with pytest.raises(UnavailableError, match="the worker process was killed by SIGKILL; try again later"):
        pool.call("signal:raise_signal", int(signal.SIGKILL), object)
    with pytest.raises(UnavailableError, match="the worker process was killed by status 7"):
        pool.call("os:_exit", 7, object)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UnavailableError, match=r"the worker process does not start: .*/nowhere/python"):
        pool.call(ECHO, {}, dict)


def test_large_payloads_beyond_some_are_refused_at_once(make, tmp_path):
    pool, go = make(n_workers=2, max_small=1_000, max_large=2), tmp_path / "go"
    slow = f"{waiting_for(go)} #" + "a" * 1_000
    with ThreadPoolExecutor(2) as threads:
        large = [threads.submit(pool.call, EVALUATE, slow, object) for _ in range(2)]
        wait_until(lambda: pool._n_large == 2)
        with pytest.raises(UnavailableError, match="the work: no worker is free; try again later"):
            pool.call(EVALUATE, slow, object)
        assert not any(call.done() for call in large)
        go.touch()
        assert [call.result(PATIENCE) for call in large] == [False] * 2
    assert pool.call(EVALUATE, slow, object) is False
