"""Kernels whose LLVM IR comes with the package: compiled without Numba, and again with it where the IR is of no use."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pumice
from pumice_cpu import pretranslated
from pumice_cpu.compiler import compile_one, source_of
from pumice_cpu.isa import current

FIRST_WORDS = """
import os, sys
import pumice
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])  # all kernels are compiled in this process
with pumice.load(backend="cpu") as model:
    print(model.generate("Once upon a time", max_tokens=8, temperature=0).text)
assert "numba" not in sys.modules, "a kernel of the demo model is not in pretranslated.json.xz: run make kernels"
"""


def test_the_first_words_wait_for_llvm_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "PUMICE_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FIRST_WORDS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pumice.load(backend="cpu") as model:
        assert done.stdout == model.generate("Once upon a time", max_tokens=8, temperature=0).text + "\n"
    assert list(tmp_path.iterdir()), "the kernels were in a cache"


@pytest.mark.parametrize("part", ["kernel", "definitions"])
def test_ir_that_this_llvm_does_not_read_is_translated_again(tmp_path: Path, monkeypatch: Any, part: str) -> None:
    name, strange = "step.start", "no LLVM IR"
    parameters, source = source_of(name)
    monkeypatch.setattr(pretranslated, "FILE", tmp_path / part)
    pretranslated.write(
        {name: (parameters, strange if part == "kernel" else source)},
        {current().name: strange} if part == "definitions" else {},
    )
    assert compile_one(name).parameters == parameters
    assert pretranslated.find(name) is None, "the file is of no use for other kernels either"


@pytest.mark.parametrize("content", [None, b"", b"no xz"])
def test_a_package_without_ir_has_no_kernels(tmp_path: Path, monkeypatch: Any, content: bytes | None) -> None:
    monkeypatch.setattr(pretranslated, "FILE", tmp_path / "other")
    if content is not None:
        (tmp_path / "other").write_bytes(content)
    assert pretranslated.find("step.run") is None
