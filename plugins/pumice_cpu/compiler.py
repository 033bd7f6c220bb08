"""Compilation of kernels by name, in several processes, since Numba holds Python's global lock.

Run as a program, this module is one of those processes: it reads names from stdin, one a line, and writes compiled
kernels to stdout.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pumice.plugin.unstable import cores, without_collections
from pumice_cpu import cache, pretranslated
from pumice_cpu.cache import CompiledKernel
from pumice_cpu.codegen import function_source, kernel_source, object_file, parameters
from pumice_cpu.isa import ENVIRONMENT, current
from pumice_cpu.sources import symbol

logger = logging.getLogger("pumice")

WORTH_A_PROCESS = 3  # number of kernels that take longer to compile than a process takes to start


def function_of(name: str) -> Callable[..., Any]:
    """Return the Python function named by a kernel's name.

    ``norms.rms_norm`` is the function ``rms_norm`` of ``pumice_cpu.kernels.norms``. ``linear.matmul:q4_0:8`` is the
    return value of ``matmul("q4_0", "8")`` of ``pumice_cpu.kernels.linear``.
    """
    path, *arguments = name.split(":")
    module, attribute = path.rsplit(".", 1)
    function: Callable[..., Any] = getattr(importlib.import_module(f"pumice_cpu.kernels.{module}"), attribute)
    return function(*arguments) if arguments else function


def source_of(name: str) -> tuple[list[str], str]:
    """Return the names of a kernel's parameters and its LLVM IR for the current instruction set."""
    function = function_of(name)
    names = parameters(function)
    with without_collections():  # Numba allocates millions of objects, whose scans take a quarter of its time
        if names[0] == "thread":
            return names[2:], kernel_source(function, symbol(name))
        return names, function_source(function, symbol(name))


def compile_one(name: str) -> CompiledKernel:
    """Compile a kernel for the current instruction set."""
    if translated := pretranslated.find(name):
        try:
            return CompiledKernel(translated.parameters, object_file(translated.source))
        except RuntimeError as error:
            logger.info("cpu: LLVM does not read the package's IR (%s: %s); translating kernels again", name, error)
            pretranslated.discard()
    names, source = source_of(name)
    return CompiledKernel(names, object_file(source))


def compile_all(names: Sequence[str]) -> Iterator[tuple[str, CompiledKernel]]:
    """Compile kernels in this process and in helper processes, and yield each when it is ready.

    This process compiles any kernel that a helper fails to return. Processes that start together share the work: each
    has an order of its own, and finds in the cache what others have compiled meanwhile.
    """
    # Names with more variants stand for larger kernels, attention's foremost. Last, one would keep a single core busy.
    todo = deque(sorted(random.sample(names, len(names)), key=lambda name: name.count(":"), reverse=True))
    done = deque[tuple[str, CompiledKernel]]()
    # The executable of a frozen program is no Python interpreter.
    can_help = sys.executable and not getattr(sys, "frozen", False)
    n_helpers = min(cores(), len(names) // WORTH_A_PROCESS) - 1 if can_help else 0
    helpers = [_Helper(todo, done) for _ in range(n_helpers)]
    missing = set(names)
    try:
        while (name := _take(todo)) is not None:
            done.append((name, cache.load(name) or compile_one(name)))
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
    """A thread that feeds names to a helper process until none are left."""

    def __init__(self, todo: deque[str], done: deque[tuple[str, CompiledKernel]]) -> None:
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
            self._process.stdout.readline()  # the helper is ready
            while self._process.poll() is None and (name := _take(self._todo)) is not None:
                print(name, file=self._process.stdin, flush=True)
                reply = json.loads(self._process.stdout.readline())
                self._done.append((name, CompiledKernel(reply["parameters"], base64.b64decode(reply["code"]))))
        except (OSError, ValueError):  # the helper did not start, or exited
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


def _drain(done: deque[tuple[str, CompiledKernel]], missing: set[str]) -> Iterator[tuple[str, CompiledKernel]]:
    while done:
        name, entry = done.popleft()
        missing.discard(name)
        yield name, entry


def _serve() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        entry = cache.load(line.strip()) or compile_one(line.strip())
        code = base64.b64encode(entry.code).decode()
        print(json.dumps({"parameters": entry.parameters, "code": code}), flush=True)


if __name__ == "__main__":
    _serve()
