"""Where the seconds of the tests go, by file and by kind.

    python -m pytest -p tools.test_times --times build/times.jsonl tests/core
    python -m tools.test_times build/times.jsonl --by 2

The first command, repeated for parts of the suite, appends a line for each test; the second prints a table. All kinds
are seconds of processor time except ``waiting``, so that other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

KINDS = {
    "imports": "the main thread imports modules",
    "kernels": "the main thread compiles kernels with Numba",
    "pipelines": "the main thread compiles shaders in the Vulkan driver",
    "python": "the rest of the main thread",
    "threads": "other threads: servers, the software device, engines",
    "processes": "child processes, such as commands, engines, compilers",
    "browser": "child processes of the page's tests",
    "waiting": "seconds of sleep() in the main thread",
}
WRAPPED = {  # functions of this process, by the kind of their time
    "kernels": ("pumice_cpu.compiler", "compile_one"),
    "pipelines": ("pumice_vulkan.device.native.pipeline", "NativePipeline._created"),
}
Clock = Callable[[], float]
SPENT: Counter[str] = Counter()
ACTIVE: list[str] = []  # kinds that the main thread is in, the innermost last


def _timed(kind: str, function: Callable[..., Any], clock: Clock = time.thread_time) -> Callable[..., Any]:
    """Wrap a function: its time is that of ``kind``, not of the kind around it."""

    def call(*args: Any, **options: Any) -> Any:
        if kind in ACTIVE:
            return function(*args, **options)
        start, around = clock(), ACTIVE[-1:]
        ACTIVE.append(kind)
        try:
            return function(*args, **options)
        finally:
            ACTIVE.pop()
            spent = clock() - start
            SPENT[kind] += spent
            for outer in around:
                SPENT[outer] -= spent

    return call


def _wrap(kind: str, module: Any, path: str) -> None:
    *owners, name = path.split(".")
    for owner in owners:
        module = getattr(module, owner)
    if not hasattr(getattr(module, name), "timed"):
        wrapped = _timed(kind, getattr(module, name))
        wrapped.timed = True  # type: ignore[attr-defined]
        setattr(module, name, wrapped)


def _clocks() -> dict[str, float]:
    times = os.times()
    thread, process = time.thread_time(), time.process_time()
    return {"main": thread, "threads": process - thread, "children": times.children_user + times.children_system}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", help="append the seconds of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    bootstrap = importlib._bootstrap  # type: ignore[attr-defined]
    bootstrap._find_and_load = _timed("imports", bootstrap._find_and_load)
    time.sleep = _timed("waiting", time.sleep, time.monotonic)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    for kind, (name, path) in WRAPPED.items():
        if name in sys.modules:
            _wrap(kind, sys.modules[name], path)
    before, spent = _clocks(), SPENT.copy()
    result = yield
    passed = {name: value - before[name] for name, value in _clocks().items()}
    kinds = {kind: SPENT[kind] - spent[kind] for kind in ("imports", "kernels", "pipelines", "waiting")}
    kinds["python"] = passed["main"] - sum(kinds[kind] for kind in ("imports", "kernels", "pipelines"))
    kinds["threads"] = passed["threads"]
    kinds["browser" if "/page/" in item.nodeid else "processes"] = passed["children"]
    line = {"test": item.nodeid} | {kind: round(value, 4) for kind, value in kinds.items() if value > 0.00005}
    if path := item.config.getoption("--times"):
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")
    return result


def table(paths: list[Path], depth: int, rows: int) -> Iterator[str]:
    """Yield the lines of a table: a row for each folder or file with ``depth`` parts of its path, the longest first."""
    sums: dict[str, Counter[str]] = {}
    for line in (line for path in paths for line in path.read_text().splitlines()):
        seconds = json.loads(line)
        name = "/".join(seconds.pop("test").split("::")[0].split("/")[:depth])
        for row in (name, "all"):
            sums.setdefault(row, Counter()).update(seconds, tests=1)
    for row in sums.values():
        row["cpu"] = sum(row[kind] for kind in KINDS if kind != "waiting")
    columns = ["tests", "cpu", *KINDS]
    yield " | ".join([*columns, "where"])
    for name, row in sorted(sums.items(), key=lambda entry: -entry[1]["cpu"])[: rows + 1]:
        yield " | ".join([*(f"{row[column]:{len(column)}.0f}" for column in columns), name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of --times")
    parser.add_argument("--by", type=int, default=9, metavar="N", help="parts of a path that stand for a row (9)")
    parser.add_argument("--rows", type=int, default=60, metavar="N", help="rows to print (60)")
    arguments = parser.parse_args()
    print("\n".join(f"{kind}: {text}" for kind, text in KINDS.items()), end="\n\n")
    print("\n".join(table(arguments.files, arguments.by, arguments.rows)))


if __name__ == "__main__":
    main()
