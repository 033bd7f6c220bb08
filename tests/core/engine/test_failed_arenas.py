"""Every allocation of host memory that a load makes fails once: one error, and the next load works."""

import numpy as np
import pytest

import pumice
from pumice.backend.arena import Arena
from pumice.errors import BackendError
from tiny_models import IDS


def load(path, backend):
    return pumice.load(path, backend=backend, n_ctx=64, n_batch=16)


def no_memory(*arguments, **named):
    raise MemoryError


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
                    patch.setattr(np, "zeros", no_memory)
                make(arena, size, purpose)

        with monkeypatch.context() as patch:
            patch.setattr(Arena, "__init__", make_or_fail)
            with pytest.raises(BackendError, match=r"not enough memory: .* needs .* MiB; use a smaller"):
                load(path, backend)
    with load(path, backend) as model:
        np.testing.assert_array_equal(model.logits(IDS), expected)
