"""The bundled architectures against llama.cpp, and against themselves where scheduling must not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from make_fixtures import families
from nightly import variants
from pumice_architectures import ARCHITECTURES
from reference_models import SHARED_IDS, SHARED_MODELS, error
from tiny_drafts import DRAFTS
from tiny_encoders import MODELS as ENCODERS
from tiny_models import IDS, LLAMA, N_CTX, TinyModel, tiny, weights, write_tiny
from tiny_t5 import MODELS as ENCODER_DECODERS
from tiny_zoo import CHUNKED, DAILY, LIMITS, ROPES, ZOO


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


def test_every_architecture_has_tiny_models() -> None:
    models = [*ZOO.values(), *ENCODERS.values(), *ENCODER_DECODERS.values(), *DRAFTS.values()]
    known = {model.architecture for model in models} | {"whisper"}  # test_whisper.py
    assert known <= set(ARCHITECTURES)
    for architecture in set(ARCHITECTURES) - known:  # compared with transformers, tests/core/convert
        assert families.models(architecture), architecture


def test_every_scaling_shows(tiny_logits: Any) -> None:
    """Logits that no scaling changed would prove nothing."""
    for name in ROPES:
        alike = error(tiny_logits[name], tiny_logits["rope-plain"])
        assert (alike == 0) == (name in ("rope-plain", "rope-none"))
        assert alike == 0 or alike > 1e-3


@pytest.mark.parametrize(
    "name", ["rope-yarn-temperature", *variants(CHUNKED, [name for name in DAILY if name in CHUNKED])]
)
def test_batching_does_not_change_logits(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    """Not for deep models: their random layers make 1e-4 of one last bit of the embeddings."""
    for n_batch in (1, 5):
        assert error(logits(tiny_file(name), ZOO[name].ids, n_batch), tiny_logits[name]) < LIMITS.get(name, 1e-6)


def test_layers_of_different_sizes(tmp_path: Path) -> None:
    """Fewer key heads are the same as repeated ones, a smaller feed-forward block the same as one with zeros."""
    model = tiny("llama", LLAMA)
    head_dim, n_head, n_ff = 16, 4, 96
    tensors = {name: weights(name, shape) for name, shape in model.shapes.items()}
    for name in ("blk.1.attn_k.weight", "blk.1.attn_v.weight"):
        tensors[name] = tensors[name][:head_dim]
    for name in ("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"):
        tensors[name] = tensors[name][: n_ff // 2]
    tensors["blk.1.ffn_down.weight"] = tensors["blk.1.ffn_down.weight"][:, : n_ff // 2]
    varied = _write(
        model, tensors, tmp_path / "varied.gguf", {"head_count_kv": [2, 1], "feed_forward_length": [n_ff, n_ff // 2]}
    )

    for name in ("blk.1.attn_k.weight", "blk.1.attn_v.weight"):
        tensors[name] = np.tile(tensors[name], (n_head, 1))
    for name in ("blk.0.attn_k.weight", "blk.0.attn_v.weight"):
        tensors[name] = np.repeat(tensors[name].reshape(2, head_dim, -1), 2, axis=0).reshape(n_head * head_dim, -1)
    for name in ("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"):
        tensors[name] = np.pad(tensors[name], ((0, n_ff // 2), (0, 0)))
    tensors["blk.1.ffn_down.weight"] = np.pad(tensors["blk.1.ffn_down.weight"], ((0, 0), (0, n_ff // 2)))
    uniform = _write(model, tensors, tmp_path / "uniform.gguf", {"head_count_kv": n_head, "feed_forward_length": n_ff})

    assert error(logits(varied, IDS), logits(uniform, IDS)) < 1e-10


def _write(model: TinyModel, tensors: dict[str, Any], path: Path, changes: dict[str, Any]) -> Path:
    metadata = model.metadata | {"attention.head_count_kv": changes["head_count_kv"]}
    return write_tiny(path, "llama", metadata | {"feed_forward_length": changes["feed_forward_length"]}, tensors)
