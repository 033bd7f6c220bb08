"""The bundled architectures against llama.cpp, and against themselves where scheduling must not matter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from nightly import variants
from reference_models import SHARED_IDS, SHARED_MODELS, error
from tiny_models import N_CTX
from tiny_zoo import CHUNKED, LIMITS, ROPES, SPANNING, ZOO


def logits(path: Path, ids: list[int], n_batch: int = 512) -> NDArray[np.float32]:
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX, n_batch=n_batch) as model:
        return model.logits(ids)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_llama_cpp_test_models(shared: Path, name: str) -> None:
    with np.load(shared / "archs" / "expected_logits.npz") as expected:
        assert error(logits(shared / "archs" / f"{name}.gguf", SHARED_IDS), expected[name]) < 1e-6


@pytest.mark.parametrize("name", ZOO)
def test_tiny_models(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids), tiny_logits[name]) < LIMITS.get(name, 1e-6)


def test_every_scaling_shows(tiny_logits: Any) -> None:
    """Logits that no scaling changed would prove nothing."""
    for name in ROPES:
        alike = error(tiny_logits[name], tiny_logits["rope-plain"])
        assert (alike == 0) == (name in ("rope-plain", "rope-none"))
        assert alike == 0 or alike > 1e-3


@pytest.mark.parametrize(
    "name", ["rope-yarn-temperature", *variants(CHUNKED, [name for name in SPANNING if name in CHUNKED])]
)
def test_batching_does_not_change_logits(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    """Not for deep models: their random layers make 1e-4 of one last bit of the embeddings."""
    for n_batch in (1, 5):
        assert error(logits(tiny_file(name), ZOO[name].ids, n_batch), tiny_logits[name]) < LIMITS.get(name, 1e-6)
