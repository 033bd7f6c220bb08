"""Every allocation of host memory that a load makes fails once: one error, and the next load works."""

import errno
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

import pumice
from pumice.backend.arena import Arena
from pumice.errors import BackendError
from tiny_models import IDS


def load(path, backend):
    return pumice.load(path, backend=backend, n_ctx=64, n_batch=16)


def no_memory(*arguments, **named):
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("name", ["llama-bias", "mamba"])
@pytest.mark.parametrize("backend", ["cpu", "numpy"])
def test_an_arena_that_cannot_be_had_is_one_error(tiny_file, monkeypatch, backend, name):
    path, make, before = tiny_file(name), Arena.__init__, Arena.count
    with load(path, backend) as model:
        expected = model.logits(IDS)
    n_arenas = Arena.count - before
    assert n_arenas
    for number in range(n_arenas):
        failing = Arena.count + number

        def make_or_fail(arena, size, purpose, failing=failing):
            with monkeypatch.context() as patch:
                if Arena.count == failing:
                    patch.setattr(mmap, "mmap", no_memory)
                make(arena, size, purpose)

        with monkeypatch.context() as patch:
            patch.setattr(Arena, "__init__", make_or_fail)
            with pytest.raises(BackendError, match=r"not enough memory: .* needs .* MiB; use a smaller"):
                load(path, backend)
    with load(path, backend) as model:
        np.testing.assert_array_equal(model.logits(IDS), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory of a process")
def test_an_arena_takes_the_memory_that_is_written():
    arena, n_pages = Arena(256 * 2**20, "test"), 64
    before = resident_bytes()
    arena.view(0, (n_pages, 4 * 2**20), np.uint8)[:, 0] = 1
    always = "[always]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    assert resident_bytes() - before < n_pages * (2**21 if always else 2**17)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
