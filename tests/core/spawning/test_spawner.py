"""The spawner: what it starts for a process that may start nothing itself, and what becomes of both ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pumice
from gguf_files import tiny_llama
from pumice.cli.ahead import discard_engine, prepare_engine
from pumice.cli.confinement import start_engine
from pumice.config import load_config
from pumice.errors import EngineError, SandboxError, UnavailableError
from pumice.isolation import CallLimits, WorkerPool
from pumice.process import confinement
from pumice.process.codec import COMMANDS, Load
from pumice.process.confinement import keep_sandbox
from pumice.spawning import client, end, server, spawner, start, wire
from pumice.spawning.child import UNKNOWN
from pumice.spawning.client import Spawner
from sandboxes import needs_sandbox
from waiting import PATIENCE, gone, hang, wait_until

pytestmark = pytest.mark.skipif(not hasattr(socket, "send_fds"), reason="pipes are not passed on this system")

LIMITS = CallLimits(cpu_seconds=60, wall_seconds=PATIENCE, wait_seconds=PATIENCE)
WEAK = (Path("model.gguf"), load_config({"memory_limit": 4}).layers, "", "", 30)


@pytest.fixture
def spawned():
    with spawner() as made:
        yield made


@pytest.fixture
def pool(spawned):
    pool = WorkerPool("the work", LIMITS, 1)
    yield pool
    pool.close()


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "secret")
    prepare_engine()
    child = client._prepared
    assert child is not None
    yield child
    discard_engine()


needs_descriptors = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system has no process descriptors")


@needs_sandbox
@needs_descriptors
def test_a_prepared_process_becomes_the_engine_that_was_started_ahead(tmp_path, prepared):
    path, options = tiny_llama(tmp_path / "tiny.gguf"), {"backend": "numpy", "config": {"n_ctx": 64, "sandbox": "on"}}
    with spawner() as made:
        start_engine(str(path), options, "serve")
        assert not made._children
        with pumice.load_process(str(path), command="serve", **options) as model:
            assert model.engine.link._child is prepared
            assert parent(prepared.pid) == os.getpid()
            assert model.generate("a", max_tokens=2).tokens
            status = Path(f"/proc/{prepared.pid}/status").read_text()
            assert "Seccomp:\t2" in status
            assert "NoNewPrivs:\t1" in status
        assert prepared.poll() == 0
        with pumice.load_process(str(path), command="serve", **options) as model:
            assert model.engine.link._child is made._children[0]


def test_workers_are_its_children_and_end_with_it():
    with spawner() as made:
        pool = WorkerPool("the work", LIMITS, 1)
        assert pool.call("builtins:dict", {"a": 1}, dict) == {"a": 1}
        (pid,) = pool.pids
        assert parent(pid) == made.pid
        with pytest.raises(UnavailableError, match="was killed by SIGKILL"):  # its status comes here
            pool.call("signal:raise_signal", int(signal.SIGKILL), object)
        assert pool.call("builtins:len", [1], int) == 1
        (pid,) = pool.pids
    wait_until(lambda: gone(pid))
    assert gone(made.pid)
    pool.close()


def test_a_stopped_worker_is_killed(spawned):
    other = start("worker", b"{}")
    child = start("worker", b'{"cpu_seconds":60}')
    hang(child.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    assert child.poll() is None
    other.kill(if_stopped=True)
    child.kill(if_stopped=True)
    assert child.wait(PATIENCE) == -signal.SIGKILL == child.poll()
    assert other.poll() is None


def test_a_killed_spawner_leaves_what_runs(spawned, pool, caplog):
    assert pool.call("builtins:len", [1], int) == 1
    (pid,) = pool.pids
    os.kill(spawned.pid, signal.SIGKILL)
    wait_until(lambda: caplog.messages)
    assert caplog.messages == [
        "the process that starts engines and workers has ended: start the server again; running engines continue"
    ]
    assert pool.call("builtins:len", [1, 2], int) == 2
    assert pool.pids == [pid]
    with pytest.raises(UnavailableError, match="has ended: start the server again"):
        pool.call("os:_exit", 1, object)
    with pytest.raises(EngineError, match="start the server again"):
        start("worker", b"{}")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x04\x00\x00\x00\xc1\xc1\xc1\xc1",
        b"\x03\x00\x00\x00\x92\xa1a",
        b"\x05\x00\x00\x00\xa4Kill",
        wire._LENGTH.pack(12) + b"\x94\xa5Start\x01\xa2sh\xc4\x00",  # no such kind
    ],
)
def test_a_wrong_message_ends_it_and_all_that_it_started(data, capfd, caplog):
    with spawner() as made:
        child = start("worker", b"{}")
        made._channel.sendall(data)
        wait_until(lambda: gone(child.pid) and caplog.messages)
        _, status = os.waitpid(made.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    asked = "the process that starts engines received an invalid request, and ends: "
    assert [line.startswith(asked) for line in capfd.readouterr().err.splitlines()].count(True) == 1


def test_orders_that_are_refused(spawned):
    for order in (b"", b"\x00" * 10, COMMANDS.encode(Load(*WEAK)).replace(b"Load", b"Lode")):
        with pytest.raises(EngineError, match="invalid message from another process"):
            start("engine", order)
    with pytest.raises(EngineError, match=r"no process can be started: .* exceeds the limit"):
        start("engine", bytes(wire.MAX_BYTES))


@needs_sandbox
def test_no_engine_is_confined_less_than_the_server_is_told(monkeypatch):
    config = load_config({"memory_limit": 4})
    monkeypatch.setattr(confinement, "_kept", None)
    keep_sandbox(config, ["models", "model.gguf"])
    with spawner():

        def load(path: object = WEAK[0], **settings: object) -> bytes:
            return COMMANDS.encode(Load(path, load_config({"memory_limit": 4} | settings).layers, *WEAK[2:]))

        weaker = {"sandbox": "off", "sandbox_read": ["/"], "sandbox_write": ["/"], "memory_limit": 0}
        for settings in (*({name: value} for name, value in weaker.items()), {"memory_limit": 8}):
            with pytest.raises(SandboxError, match="cannot be weakened"):
                start("engine", load(**settings))
        for path in ("other.gguf", "models/../other.gguf", "modelsx/a.gguf", "/etc/passwd"):
            with pytest.raises(SandboxError, match="the server was not started with this model"):
                start("engine", COMMANDS.encode(Load(Path(path), *WEAK[1:])))
        for draft in ({"draft": "other.gguf"}, {"adapters": {"a": "other.gguf"}}):
            with pytest.raises(SandboxError, match="was not started with this model"):
                start("engine", load(**draft))
        with pytest.raises(EngineError, match="invalid order of a reader"):
            start("reader", b"model.gguf")
        child = start("engine", load(Path("models/a.gguf"), sandbox="on", memory_limit=2))
        child.kill()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("", OSError),
        ("SandboxError", SandboxError),
        ("PromptTooLongError", EngineError),
        ("QueueFullError", EngineError),
        ("annotations", EngineError),
        ("Nothing", EngineError),
    ],
)
def test_errors_of_any_kind_are_told(kind, expected, monkeypatch):
    near, far = socket.socketpair()
    made = Spawner(near, 0)
    with ThreadPoolExecutor() as threads, near, far:
        starting = threads.submit(made.start, "worker", b"{}")
        asked, pipes = wire.receive(far, wire.ASKED)
        wire.close(pipes)
        wire.send(far, wire.NotStarted(asked.number, kind, "why"))
        with pytest.raises(expected, match=r"^why$"):
            starting.result(PATIENCE)


def test_it_keeps_nothing_of_its_parent(tmp_path):
    """No descriptors, so no socket that is listened on. It does not end by signals of a terminal; its children do."""
    with socket.create_server(("127.0.0.1", 0)), open(tmp_path / "file", "w"), spawner() as made:
        wait_until(lambda: len(os.listdir(f"/proc/{made.pid}/fd")) <= 8)
        links = [os.readlink(f"/proc/{made.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{made.pid}/fd")]
        assert sum("socket" in link for link in links) == 1
        assert not any("file" in link for link in links)
        child = start("worker", b"{}")
        os.kill(made.pid, signal.SIGTERM)
        os.kill(made.pid, signal.SIGINT)
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(PATIENCE) == -signal.SIGTERM


CONFINED = """
import json, os, subprocess, sys
from pumice.isolation import WorkerPool
from pumice.sandbox import Access, Policy, enforce, trial
from pumice.spawning import spawner

with spawner():
    enforce(Policy(Access(read=("/",))))
    pool = WorkerPool("the work")
    outcomes = trial.run()
    print(json.dumps([pool.call("builtins:len", [1, 2], int), outcomes]))
    pool.close()
"""


@needs_sandbox
def test_a_process_that_may_start_nothing_has_workers():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CONFINED], env=environment, capture_output=True, check=True)
    length, outcomes = json.loads(done.stdout)
    assert length == 2
    allowed = {name for name, outcome in outcomes.items() if outcome != "denied"}
    assert allowed == {"read `/etc/passwd`", "list the home folder", "read the parent's `/proc/PID/environ`"} & allowed


def test_a_stopped_spawner_and_its_stopped_children_hold_up_no_confined_process(tmp_path, monkeypatch, caplog):
    """Such a process may signal none of them."""

    def denied(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr("pumice.process.engine._CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("pumice.process.engine._STOPPED_SECONDS", 0.1)
    with spawner() as made:
        model = pumice.load_process(tiny_llama(tmp_path / "tiny.gguf"), backend="numpy")
        worker = start("worker", b"{}")
        for pid in (model.engine.link.pid, worker.pid, made.pid):
            hang(pid)
        monkeypatch.setattr(os, "kill", denied)
        model.close()
        assert end(worker) == UNKNOWN
        end(worker)
    monkeypatch.undo()
    pids = model.engine.link.pid, worker.pid
    assert [message for message in caplog.messages if "is not killed" in message] == [
        f"process {pid} is not killed: the process that starts engines is stopped" for pid in pids
    ]
    for pid in (*pids, made.pid):  # the spawner last: once it runs, it reaps the others
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: all(map(gone, pids)))
    os.waitpid(made.pid, 0)


LEFT = """
import sys
from pumice.sandbox import Access, Policy, enforce
from pumice.spawning import spawner, start

with spawner() as made:
    enforce(Policy(Access(read=("/",))))
    pids = [made.pid, *(start("worker", b'{"cpu_seconds":60}').pid for _ in range(2))]
    print(*pids, flush=True)
    sys.stdin.read()
"""


def test_a_stopped_spawner_and_its_children_end_with_a_confined_process_that_is_killed():
    """The process may signal no other, so no signal at its end is its own."""
    command = [sys.executable, "-c", LEFT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pids = [*map(int, process.stdout.readline().split())]
        assert len(pids) == 3
        for pid in pids[:2]:
            hang(pid)
        process.kill()
    wait_until(lambda: all(map(gone, pids)))


@needs_descriptors
def test_a_prepared_process_has_no_secrets(prepared):
    environment = Path(f"/proc/{prepared.pid}/environ")
    wait_until(environment.read_bytes)  # empty while the kernel starts the program
    assert b"PATH=" in environment.read_bytes()
    assert b"MY_API_KEY" not in environment.read_bytes()


def test_so_many_children_and_no_more(monkeypatch):
    monkeypatch.setattr(server, "MAX_CHILDREN", 2)
    with spawner():
        children = [start("worker", b"{}") for _ in range(2)]
        with pytest.raises(OSError, match="2 processes are already running"):
            start("worker", b"{}")
        children[0].kill()
        children[0].wait(PATIENCE)
        start("worker", b"{}").kill()
