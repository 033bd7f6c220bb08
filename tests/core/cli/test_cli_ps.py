"""``pumice ps``: who has a model loaded."""

import json
import os
import subprocess
import sys

import pytest
from filelock import FileLock

from pumice.process_list import RunningModel, directory, listed, processes


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def running(**changes):
    facts = {"command": "run", "model": "x.gguf", "backends": ["cpu"], "memory": {"weights": 2048}, "n_ctx": 9}
    return RunningModel(**{**facts, **changes})


def test_a_model_is_listed_while_it_is_loaded(run):
    server = running(command="serve", address="http://127.0.0.1:8080", since=5.0)
    with listed(running(model="a/b:Q8_0")), listed(server):
        rows = json.loads(run("ps", "--json").stdout)
        assert [(row["command"], row["model"], row["pid"]) for row in rows] == [
            ("serve", "x.gguf", os.getpid()),
            ("run", "a/b:Q8_0", os.getpid()),
        ]
        line = run("ps").stdout.splitlines()[1].split()
        assert line[:5] == [str(os.getpid()), "run", "2.0", "KiB", "cpu"]
    assert run("ps").stdout == ""
    assert list(directory().iterdir()) == []


def test_a_process_that_was_killed_is_not_listed(run):
    code = (
        "import time; from pumice.process_list import *\n"
        "with listed(RunningModel('run', 'x', [], {}, 1)): print('.', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    assert [row["pid"] for row in json.loads(run("ps", "--json").stdout)] == [process.pid]
    process.kill()
    process.wait()
    assert run("ps").stdout == ""
    assert list(directory().glob("*.json")) == []


def test_damaged_notes_and_a_directory_that_cannot_be_written_do_no_harm(run, model):
    directory().parent.mkdir(parents=True)
    directory().write_text("a file in the way")
    assert run("run", model, "-p", "hello", "-n", "1").returncode == 0
    directory().unlink()
    directory().mkdir()
    (directory() / "1-x.json").write_text("{")
    assert run("ps").stdout == ""


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"since": "a"}', b"\xff", b"[" * 100_000, b'{"pid": 1e400}', None])
def test_notes_that_a_process_crafted_are_not_shown(content):
    """An engine that a file has subverted may write anything there."""
    directory().mkdir(parents=True)
    note = directory() / "1-x.json"
    if content is None:
        os.mkfifo(note)
    else:
        note.write_bytes(content)
    with FileLock(note.with_suffix(".lock")), listed(running()):
        assert [each.model for each in processes()] == ["x.gguf"]


def test_names_that_a_process_crafted_do_nothing_to_a_terminal(run):
    with listed(running(model="x\x1b]0;y\x07")):
        assert run("ps").stdout.splitlines()[0].endswith("x?]0;y?")
