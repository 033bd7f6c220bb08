"""Every kind of request beside every other, on NumPy and on the CPU backend."""

from pathlib import Path

import pytest

from nightly import variants
from pairs import MODELS, loaded, write, wrong_pairs

EVERY = [(backend, name) for backend in ("cpu", "numpy") for name in MODELS]
DAILY = [(backend, name) for backend, name in EVERY if backend == "cpu" or name in ("diffusion", "encoder")]


@pytest.mark.parametrize(("backend", "name"), variants(EVERY, DAILY))
def test_two_requests_at_once_are_as_alone(tmp_path: Path, backend: str, name: str) -> None:
    with loaded(write(name, tmp_path), backend=backend, kv_type="f32") as model:
        assert wrong_pairs(model, MODELS[name][1]) == []
