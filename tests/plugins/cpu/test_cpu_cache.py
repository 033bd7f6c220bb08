"""Kernels on disk: whole or not at all, for one version and one instruction set, by several processes at once."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pumice_cpu import cache, compiler
from pumice_cpu.cache import CompiledKernel
from pumice_cpu.isa import ISAS

ENTRY = CompiledKernel(["x", "y"], b"machine code\n" + bytes(range(256)))

#: Runs a kernel, whose IR no package has, on 20 numbers; prints the result, and whether Numba was needed.
PROGRAM = """
import sys
import numpy as np
from pumice_cpu.runtime import OperationTable, ThreadPool
pool = ThreadPool(2)
x, y, count = np.arange(1, 21, dtype=np.float32), np.zeros(20, np.float32), np.ones(1, np.int64)
table = OperationTable()
places = {"count": count.ctypes.data, "x": x.ctypes.data, "y": x.ctypes.data, "z": y.ctypes.data}
table.add("elementwise.binary:div", {**places, "width": 20})
pool.run(table)
print(y.sum(), "numba" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "kernels"))
    cache._folders.cache_clear()
    yield tmp_path / "kernels"
    cache._folders.cache_clear()


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PUMICE_CACHE": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=pipe, stderr=pipe, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip()


def test_a_saved_kernel_is_loaded(folder: Path) -> None:
    assert cache.load("a.kernel:1") is None
    cache.save("a.kernel:1", ENTRY)
    assert cache.load("a.kernel:1") == ENTRY
    assert cache.load("a.kernel:2") is None
    assert [path.suffix for path in folder.iterdir()] == [".kernel"]  # nothing is left of writing


def test_kernels_that_others_compile_meanwhile_are_not_compiled_again(folder: Path, monkeypatch: Any) -> None:
    compiled = []

    def compile_one(name: str) -> CompiledKernel:
        compiled.append(name)
        for other in ("a.kernel", "b.kernel"):
            cache.save(other, ENTRY)
        return ENTRY

    monkeypatch.setattr(compiler, "compile_one", compile_one)
    assert dict(compiler.compile_all(["a.kernel", "b.kernel"])) == {"a.kernel": ENTRY, "b.kernel": ENTRY}
    assert len(compiled) == 1


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:10], lambda c: b"", lambda c: c[:-1] + b"!"])
def test_a_damaged_file_is_not_used(folder: Path, damage) -> None:
    cache.save("name", ENTRY)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load("name") is None
    cache.save("name", ENTRY)
    assert cache.load("name") == ENTRY


def test_a_folder_that_cannot_be_written_is_named_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("a file")  # even for root, no file can be made in it
    cache._warn_once.cache_clear()
    for name in ("name", "other"):
        cache.save(name, ENTRY)
        assert cache.load(name) is None
    (line,) = caplog.messages
    assert line.startswith(f"compiled kernels cannot be kept ({folder}), so each start compiles them again")
    assert finish(start(folder)) == "20.0 True"


def test_other_sets_and_versions_use_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.save("name", ENTRY)
    for isa in ISAS:
        if isa != cache.current():
            with monkeypatch.context() as patch:
                patch.setattr(cache, "current", lambda isa=isa: isa)
                assert cache.load("name") is None
    monkeypatch.setattr(cache, "_versions", lambda: "of another release")
    assert cache.load("name") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_a_cache_that_others_may_write_to_is_not_used(folder: Path, mode: int, caplog: Any) -> None:
    cache.save("name", ENTRY)
    folder.chmod(mode)
    cache._folders.cache_clear()
    assert cache.load("name") is None
    assert f"ignoring cache {folder}" in caplog.text
    folder.chmod(0o755)
    cache._folders.cache_clear()
    assert cache.load("name") == ENTRY


def test_processes_that_compile_at_once_and_one_that_comes_later(tmp_path: Path) -> None:
    at_once = [start(tmp_path) for _ in range(3)]
    assert {finish(process).split()[0] for process in at_once} == {"20.0"}
    assert finish(start(tmp_path)) == "20.0 False"
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    assert finish(start(tmp_path)) == "20.0 True"
