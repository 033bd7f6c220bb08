"""Files as other converters write them, or wrote them once: tensors joined, and without keys that go without saying."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from reference_models import error
from tiny_models import N_CTX, weights, write_tiny
from tiny_zoo import DEEP, FAMILIES, LIMITS

Tensors = dict[str, np.ndarray]


def first_of_each_family() -> list[str]:
    found = {model.architecture: name for name, model in reversed(FAMILIES.items()) if name not in DEEP}
    return sorted(found.values())


EXPERTS = ["ffn_gate_exps", "ffn_up_exps"]


def join(tensors: Tensors, names: list[str], joined: str, kind: str, axis: int = 0, apart: bool = False) -> int:
    """One tensor in place of several, in every layer that has all of them, without scales, or they ``apart``."""
    layers = [name.removesuffix(f"{names[0]}.{kind}") for name in tensors if name.endswith(f".{names[0]}.{kind}")]
    layers = [layer for layer in layers if all(f"{layer}{name}.{kind}" in tensors for name in names)]
    layers = [layer for layer in layers if apart or f"{layer}{names[0]}.scale" not in tensors]
    for layer in layers:
        parts = [tensors.pop(f"{layer}{name}.{kind}") for name in names]
        tensors[f"{layer}{joined}.{kind}"] = np.concatenate(parts, axis)
    return len(layers)


def join_all(tensors: Tensors) -> int:
    n = 0
    for kind in ("weight", "bias"):
        n += join(tensors, ["attn_q", "attn_k", "attn_v"], "attn_qkv", kind)
        n += join(tensors, EXPERTS, "ffn_gate_up_exps", kind, axis=1)
    return n


def drop_implied(metadata: dict[str, Any]) -> int:
    """As many heads for keys, which share the embedding, and turn whole by what was the only base."""
    n_head, k_dim = metadata.get("attention.head_count"), metadata.get("attention.key_length")
    implied = {"attention.head_count_kv": n_head, "rope.dimension_count": k_dim, "rope.freq_base": 10000.0}
    if isinstance(n_head, int) and n_head and metadata["embedding_length"] % n_head == 0:
        width = metadata["embedding_length"] // n_head
        implied |= {"attention.key_length": width, "attention.value_length": width}
    dropped = [key for key, value in implied.items() if key in metadata and metadata[key] == value]
    for key in dropped:
        del metadata[key]
    return len(dropped)


@pytest.mark.parametrize("name", first_of_each_family())
def test_old_files_load_the_same(tmp_path: Path, tiny_logits: Any, name: str) -> None:
    model = FAMILIES[name]
    tensors = {name: weights(name, shape) for name, shape in model.shapes.items()}
    metadata = dict(model.metadata)
    if not join_all(tensors) + drop_implied(metadata):
        pytest.skip("there is but one way to write it")
    path = write_tiny(tmp_path / "model.gguf", model.architecture, metadata, tensors)
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX) as loaded:
        assert error(loaded.logits(model.ids), tiny_logits[name]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("name", ["gpt-oss", "deepseek32"])
def test_joined_experts_may_have_biases_and_scales_apart(tmp_path: Path, tiny_logits: Any, name: str) -> None:
    model = FAMILIES[name]
    tensors = {name: weights(name, shape) for name, shape in model.shapes.items()}
    assert join(tensors, EXPERTS, "ffn_gate_up_exps", "weight", axis=1, apart=True)
    assert any("ffn_gate_exps." in left for left in tensors)
    path = write_tiny(tmp_path / "model.gguf", model.architecture, dict(model.metadata), tensors)
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX) as loaded:
        assert error(loaded.logits(model.ids), tiny_logits[name]) < 1e-5
