"""Encoders and other embedding models against llama.cpp on three backends. Wrong files: test_hostile_models.py."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from pumice.evaluate.speed import prompt_seconds
from pumice.gguf import GGUFFile
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import SOFTWARE
from reference_models import error
from tiny_encoders import MODELS, encoded
from tiny_models import N_CTX, TIED, tiny

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tiny_embeddings.npz"
TRANSFORMERS = FIXTURE.with_name("transformers_embeddings.npz")
LIMIT = 1e-6
LIMITS = {"wavtokenizer-dec": 1e-4}  # llama.cpp convolves in float16
LARGEST = ["bert-rank", "nomic-bert-moe", "jina-bert-v2-code", "modern-bert-rank", "neo-bert-rank", "gemma-embedding"]
LARGEST.append("t5encoder")


@pytest.fixture(scope="module")
def expected() -> Any:
    return dict(np.load(FIXTURE))


@pytest.fixture(scope="module")
def encoder_file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("encoders")
    return cache(lambda name: MODELS[name].write(folder / f"{name}.gguf"))


def results(path: Path, pooling: int, backend: str, **options: Any) -> NDArray[np.float32]:
    with pumice.load(path, **{"backend": backend, "kv_type": "f32", "n_ctx": N_CTX} | options) as model:
        assert model.backends == [backend]
        return encoded(model, pooling)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=() if backend == "numpy" or name in LARGEST else pytest.mark.nightly)
        for name in MODELS
        for backend in ("numpy", "cpu", "vulkan")
    ],
)
def test_tiny_encoders(monkeypatch: Any, encoder_file: Any, expected: Any, name: str, backend: str) -> None:
    if backend == "vulkan":
        monkeypatch.setenv(SOFTWARE, "1")
        if reason := VulkanBackend.unavailable():
            pytest.skip(reason)
    found = results(encoder_file(name), MODELS[name].metadata["pooling_type"], backend)
    assert error(found, expected[name]) < LIMITS.get(name, LIMIT)


@pytest.mark.parametrize("name", np.load(TRANSFORMERS).files)
def test_transformers_gives_the_same(encoder_file: Any, name: str) -> None:
    """Texts of unequal lengths in one batch, there each by itself."""
    found = results(encoder_file(name), MODELS[name].metadata["pooling_type"], "numpy")
    assert error(found, np.load(TRANSFORMERS)[name]) < 1e-11


def test_an_encoder_reads_texts_whole(encoder_file: Any, expected: Any) -> None:
    """A small ``n_batch`` does not cut them."""
    assert error(results(encoder_file("modern-bert"), 1, "numpy", n_batch=4), expected["modern-bert"]) < 1e-6
    assert error(results(encoder_file("qwen2-both-ways"), 1, "cpu", n_batch=4), expected["qwen2-both-ways"]) < 1e-6


def test_an_encoder_neither_generates_nor_gives_logits(encoder_file: Any) -> None:
    with pumice.load(encoder_file("bert"), backend="numpy") as model:
        with pytest.raises(pumice.RequestError, match="does not generate text: it is an encoder"):
            model.generate([1, 2])
        for ask in (lambda: model.logits([1, 2]), lambda: prompt_seconds(model, 2)):
            with pytest.raises(pumice.RequestError, match="gives no logits: it is an encoder; use embed"):
                ask()
    with pumice.load(encoder_file("qwen2-both-ways"), backend="numpy") as model:
        assert model.logits([1, 2, 3]).shape == (3, model.n_vocab)
        with pytest.raises(pumice.RequestError, match="does not generate text"):
            model.generate([1, 2])


def test_dense_layers_follow_pooling(tmp_path: Path) -> None:
    """Dense layers of sentence-transformers are a product each."""
    layer = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
    plain = tiny("eurobert", layer, TIED, attention__causal=False, pooling_type=1)
    dense = tiny("eurobert", layer, f"{TIED} dense_2=96,n+ dense_3=32,96", attention__causal=False, pooling_type=1)
    path = dense.write(tmp_path / "dense.gguf")
    with GGUFFile.open(path) as file:
        weights = {name: file.tensors[name].dequantize() for name in file.tensors if name.startswith("dense")}
    hidden, found = results(plain.write(tmp_path / "plain.gguf"), 1, "cpu"), results(path, 1, "cpu")
    want = (hidden @ weights["dense_2.weight"].T + weights["dense_2.bias"]) @ weights["dense_3.weight"].T
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
