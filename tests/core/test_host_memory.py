"""Memory of weights: read instead of mapped, locked, and on the nodes of a machine."""

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pumice
from pumice import host_memory
from pumice.gguf import GGUFFile
from pumice.host_memory import lock_memory, numa_policy
from tiny_zoo import ZOO

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux alone has these")


def test_a_file_that_was_read_keeps_its_tensors_when_they_are_released(tmp_path: Path) -> None:
    path = ZOO["xverse"].write(tmp_path / "model.gguf")
    with GGUFFile.open(path) as mapped, GGUFFile.open(path, mapped=False) as read:
        assert read.tensors.keys() == mapped.tensors.keys()
        for name, tensor in read.tensors.items():
            tensor.release()
            assert np.array_equal(tensor.data, mapped.tensors[name].data)
            assert not tensor.data.flags.writeable


def test_options_of_host_memory_change_no_text(tmp_path: Path) -> None:
    path = ZOO["xverse"].write(tmp_path / "model.gguf")
    texts, before = [], os.sched_getaffinity(0)
    several: list[dict[str, Any]] = [{}, {"mmap": False, "mlock": True, "numa": "isolate"}]
    for options in several:
        with pumice.load(path, n_ctx=64, backend="numpy", **options) as model:
            texts.append(model.generate([5, 6, 7], max_tokens=8, temperature=0).tokens)
    assert texts[0] == texts[1]
    assert os.sched_getaffinity(0) == before


def test_pages_are_locked_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    locked: list[tuple[int, int]] = []

    def mlock(start: ctypes.c_void_p, size: ctypes.c_size_t) -> int:
        locked.append((start.value or 0, size.value))
        return -1 if len(locked) > 1 else 0

    page = host_memory.mmap.PAGESIZE
    memory = np.zeros(8 * page, np.uint8)
    first = -memory.ctypes.data % page
    arrays = [memory[first + 10 : first + 20], memory[first + 5 : first + page + 1], memory[first:first]]
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(mlock=mlock))
    assert lock_memory(arrays) == 2 * page
    assert locked == [(memory.ctypes.data + first, 2 * page)]
    assert not caplog.text
    assert lock_memory(arrays) == 0
    assert f"mlock: 0 bytes of {2 * page // 1024}.0 KiB of weights are locked: " in caplog.text


def test_threads_stay_on_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(host_memory, "NODES", tmp_path)
    for number, own in enumerate(("4096-4098,5000", str(cores[0]))):
        with numa_policy("isolate"):
            assert os.sched_getaffinity(0) == set(cores)
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(own + "\n")
    assert caplog.text.count("isolate changes nothing: the system reports no second memory node") == 2
    with numa_policy("isolate", warns=False):
        assert os.sched_getaffinity(0) == {cores[0]}
    assert os.sched_getaffinity(0) == set(cores)


def test_lists_of_cores() -> None:
    assert [host_memory._numbers(text) for text in ("0-3,8\n", "", "7")] == [{0, 1, 2, 3, 8}, set(), {7}]
