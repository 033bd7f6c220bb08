"""Whole models on the CPU backend against llama.cpp's logits, and against themselves in other chunks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from nightly import variants
from reference_models import SHARED_IDS, SHARED_MODELS, error
from tiny_models import N_CTX
from tiny_zoo import CHUNKED, LARGEST, LIMITS, SPANNING, ZOO

each_set = pytest.mark.every_instruction_set


def logits(path: Path, ids: list[int], n_batch: int = 512, **config: Any) -> NDArray[np.float32]:
    with pumice.load(path, backend="cpu", kv_type="f32", n_ctx=N_CTX, n_batch=n_batch, config=config) as model:
        assert list(model.backends) == ["cpu"], "nothing falls back to NumPy"
        return model.logits(ids)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_llama_cpp_test_models(shared: Path, name: str) -> None:
    with np.load(shared / "archs" / "expected_logits.npz") as expected:
        assert error(logits(shared / "archs" / f"{name}.gguf", SHARED_IDS), expected[name]) < 1e-4


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rope-plain", marks=each_set),
        *variants([name for name in ZOO if name != "rope-plain"], LARGEST.values()),
    ],
)
def test_tiny_models(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids), tiny_logits[name]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("name", variants(CHUNKED, [name for name in SPANNING if name in CHUNKED]))
def test_batches_and_threads_do_not_change_logits(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    """Not a bit by the number of threads of a step, which depends on the load of the machine."""
    path, ids, limit = tiny_file(name), ZOO[name].ids, LIMITS.get(name, 1e-5)
    one, two = (logits(path, ids, 5, cpu={"threads": threads}) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    for found in (one, logits(path, ids, 1, cpu={"threads": 2})):
        assert error(found, tiny_logits[name]) < limit
