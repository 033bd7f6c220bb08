"""Compiling kernels by name, several at once: in processes, as Numba keeps Python's lock while it works.

Run as a program, it is one of those processes: names come in, a line each, and compiled kernels go out.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pumice.plugin import cores
from pumice_cpu.cache import Entry
from pumice_cpu.codegen import function_source, kernel_source, object_file, parameters
from pumice_cpu.isa import ENVIRONMENT, current
from pumice_cpu.sources import symbol

WORTH_A_PROCESS = 3  # kernels that take longer to compile than another process takes to start


def function_of(name: str) -> Callable[..., Any]:
    """The Python function that a kernel's name stands for.

    ``norms.rms_norm`` is the function ``rms_norm`` of ``pumice_cpu.kernels.norms``;
    ``linear.matmul:q4_0:8`` is what ``matmul("q4_0", "8")`` of ``pumice_cpu.kernels.linear`` returns.
    """
    path, *arguments = name.split(":")
    module, attribute = path.rsplit(".", 1)
    found: Callable[..., Any] = getattr(importlib.import_module(f"pumice_cpu.kernels.{module}"), attribute)
    return found(*arguments) if arguments else found


def source_of(name: str) -> tuple[list[str], str]:
    """The parameters of a kernel, and its source in LLVM's language for the current instruction set."""
    function = function_of(name)
    names = parameters(function)
    with _no_collection():
        if names[0] == "thread":
            return names[2:], kernel_source(function, symbol(name))
        return names, function_source(function, symbol(name))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Numba makes millions of objects: to look for cycles among them again and again takes a quarter of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compile_one(name: str) -> Entry:
    """Compile a kernel for the current instruction set."""
    names, source = source_of(name)
    return Entry(names, object_file(source))


def compile_all(names: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    """Each kernel when it is compiled, here or in one of the helping processes.

    What a helper fails to give, for whatever reason, is compiled here.
    """
    todo, done = deque(names), deque[tuple[str, Entry]]()
    can_help = sys.executable and not getattr(sys, "frozen", False)  # of a frozen program it is the program itself
    n_helpers = min(cores(), len(names) // WORTH_A_PROCESS) - 1 if can_help else 0
    helpers = [_Helper(todo, done) for _ in range(n_helpers)]
    missing = set(names)
    try:
        while (name := _take(todo)) is not None:
            done.append((name, compile_one(name)))
            yield from _drain(done, missing)
        for helper in helpers:
            helper.join()
    finally:
        for helper in helpers:
            helper.stop()
    yield from _drain(done, missing)
    for name in [name for name in names if name in missing]:
        yield name, compile_one(name)


class _Helper(threading.Thread):
    """Hands names to another process until none are left."""

    def __init__(self, todo: deque[str], done: deque[tuple[str, Entry]]) -> None:
        super().__init__(daemon=True, name="pumice-cpu-compiler")
        self._todo, self._done = todo, done
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def run(self) -> None:
        environment = {**os.environ, ENVIRONMENT: current().name, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", __name__]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=null, text=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdout.readline()  # it is ready
            while self._process.poll() is None and (name := _take(self._todo)) is not None:
                print(name, file=self._process.stdin, flush=True)
                reply = json.loads(self._process.stdout.readline())
                self._done.append((name, Entry(reply["parameters"], base64.b64decode(reply["code"]))))
        except (OSError, ValueError):  # it could not be started, or came to its end
            return

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _take(todo: deque[str]) -> str | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _drain(done: deque[tuple[str, Entry]], missing: set[str]) -> Iterator[tuple[str, Entry]]:
    while done:
        name, entry = done.popleft()
        missing.discard(name)
        yield name, entry


def _serve() -> None:
    import numba  # noqa: F401 - takes long, so it comes before the first name is taken

    print("ready", flush=True)
    for line in sys.stdin:
        entry = compile_one(line.strip())
        code = base64.b64encode(entry.code).decode()
        print(json.dumps({"parameters": entry.parameters, "code": code}), flush=True)


if __name__ == "__main__":
    _serve()
