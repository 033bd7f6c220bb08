"""Commands in processes of their own, forked by one that has imported the program: most of a short command is imports.

Tests of the start itself, and of plugins, start Python.
"""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

STREAMS = ("stdin", "stdout", "stderr")
MOST_SECONDS = 300  # of a command, which SIGALRM ends then


class Commands:
    """Runs ``pumice`` with arguments, in the caller's folder and environment."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process, self._folder = process, folder

    def __call__(self, *arguments: object, text: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        argv = ["pumice", *map(str, arguments)]
        request: dict[str, Any] = {"argv": argv, "environment": os.environ | variables, "folder": os.getcwd()}
        (self._folder / "stdin").write_text(text)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        stdout, stderr = ((self._folder / name).read_text() for name in STREAMS[1:])
        return subprocess.CompletedProcess(argv, status, stdout, stderr)


@contextmanager
def prepared(*modules: str) -> Iterator[Commands]:
    """Start the process that has imported the program, and these modules."""
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-P", __file__, folder, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        yield Commands(process, Path(folder))


def _serve(folder: str, *modules: str) -> None:
    for module in ("pumice.cli", "pumice.local_engine", "pumice_numpy", *modules):
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line), folder)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(request: dict[str, Any], folder: str) -> None:
    for number, name in enumerate(STREAMS):
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0)
        os.dup2(os.open(os.path.join(folder, name), flags, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (the old one has read the requests)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["argv"]
    signal.alarm(MOST_SECONDS)
    runpy.run_module("pumice", run_name="__main__")


if __name__ == "__main__":
    _serve(*sys.argv[1:])
