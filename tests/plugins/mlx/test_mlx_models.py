"""Whole models on the MLX backend: against llama.cpp's logits, the NumPy backend's, and themselves in other chunks."""

import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from demo_models import TYPES, write_demo_model
from nightly import crossed, variants
from pumice.gguf import GGMLType
from pumice_mlx.compiled import Compiled
from reference_models import SHARED_IDS, SHARED_MODELS, error
from tiny_models import IDS, N_CTX
from tiny_zoo import CHUNKED, CLUSTERS, LIMITS, SPANNING, ZOO

COMPILED = ["llama-bias", "gemma3", "gpt-oss", "bloom", "deepseek2-v3", "hy_v4-indexed", "mamba2", "qwen3next", "rwkv7"]

DAILY_TYPES = ["F16", "Q8_0", "Q6_K", "Q5_K", "Q4_0", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K"]
"""Each number of bits, with scales of 16 columns and of 32, and each way to read a table of values."""

FIRST_OF_CLUSTERS = [next(filter(models.__contains__, CHUNKED), "") for models in CLUSTERS.values()]
FIRST_OF_CLUSTERS.remove("")  # one of ways to scale positions alone


def logits(path: Path, ids: list[int], n_batch: int = 512, kv_type: str = "f32", **options: str) -> Any:
    config = {"mlx": {"activations": "float32", "compile": "never", **options}}
    with pumice.load(path, backend="mlx", kv_type=kv_type, n_ctx=N_CTX, n_batch=n_batch, config=config) as model:
        assert list(model.backends) == ["mlx"], "nothing falls back to another backend"
        return model.logits(ids)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_llama_cpp_test_models(shared: Path, name: str) -> None:
    with np.load(shared / "archs" / "expected_logits.npz") as expected:
        assert error(logits(shared / "archs" / f"{name}.gguf", SHARED_IDS), expected[name]) < 1e-6


@pytest.mark.parametrize("name", variants(ZOO, SPANNING))
def test_tiny_models(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids), tiny_logits[name]) < LIMITS.get(name, 1e-6)


@pytest.mark.parametrize(("name", "n_batch"), crossed(FIRST_OF_CLUSTERS, [1, 5]))
def test_chunks_do_not_change_logits(tiny_file: Any, tiny_logits: Any, name: str, n_batch: int) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids, n_batch), tiny_logits[name]) < LIMITS.get(name, 1e-6)


@pytest.fixture
def uncompiled() -> Iterator[None]:
    """Let MLX call what it would compile, since its compilation for processors takes seconds a model."""
    import mlx.core as mx

    mx.disable_compile()
    yield
    mx.enable_compile()


def check_compiled(path: Path, ids: list[int], expected: NDArray[np.float32], limit: float, caplog: Any) -> None:
    """Token by token, which is one compiled step for each number of blocks."""
    graph = mock.Mock(side_effect=Compiled._build)
    noted = mock.patch.object(Compiled, "_build", lambda self, *arrays: graph(self, *arrays))
    with noted, caplog.at_level(logging.INFO, "pumice"):
        found = logits(path, ids, 1, compile="always")
    assert error(found, expected) < limit
    assert graph.called, "never compiled: what does it prove?"
    assert "steps are not compiled" not in caplog.text


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps(tiny_file: Any, tiny_logits: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    check_compiled(tiny_file(name), ZOO[name].ids, tiny_logits[name], LIMITS.get(name, 1e-6), caplog)


@pytest.mark.skipif(not shutil.which("c++"), reason="MLX compiles for the processor with c++")
def test_a_compiled_step(tiny_file: Any, tiny_logits: Any, caplog: pytest.LogCaptureFixture) -> None:
    check_compiled(tiny_file("gpt-oss"), ZOO["gpt-oss"].ids, tiny_logits["gpt-oss"], 1e-6, caplog)


@pytest.mark.usefixtures("uncompiled")
def test_compiled_steps_of_several_sequences() -> None:
    """Sequences begin and end, contexts grow over blocks, slots are taken again, and several steps run ahead."""
    texts: dict[str, list[str]] = {}
    for compile in ("never", "always"):
        options: dict[str, Any] = {"n_ctx": 512, "n_parallel": 3, "config": {"mlx": {"compile": compile}}}
        with pumice.load(backend="mlx", kv_type="f32", **options) as model, ThreadPoolExecutor(3) as pool:
            prompts = ["Once upon a time", "Tom", "The cat", "Mia saw a big"]
            tell = partial(model.generate, max_tokens=25, temperature=0)
            texts[compile] = [told.text for told in pool.map(tell, prompts)]
    assert texts["always"] == texts["never"]


@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "deepseek2-v3"])
def test_activations_of_float16(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    """Weights of float32 are multiplied in float32 all the same: attention is what is rounded."""
    found = logits(tiny_file(name), IDS, activations="float16", kv_type="f16")
    assert 1e-10 < error(found, tiny_logits[name]) < 1e-5


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("type", variants(TYPES, DAILY_TYPES))
def test_every_quantization_type(tmp_path: Path, type: str) -> None:
    path = write_demo_model(tmp_path / "model.gguf", GGMLType[type], n_layer=2)
    ids = [(37 * i + 3) % 500 for i in range(6)]
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX) as model:
        expected = model.logits(ids)
    for n_batch in (1, 6):
        assert error(logits(path, ids, n_batch), expected) < 1e-10
    assert error(logits(path, ids, 1, compile="always"), expected) < 1e-10
    assert error(logits(path, ids, activations="float16", kv_type="f16"), expected) < 1e-4


TOLD = [("f32", (60, 20, 20)), ("f16", (60,))]


@pytest.mark.parametrize(("kv_type", "lengths"), variants([*TOLD, ("f32", (200, 200, 200)), ("f16", (200,))], TOLD))
def test_the_text_of_llama_cpp(shared: Path, kv_type: str, lengths: tuple[int, ...]) -> None:
    model_path, expected_path = (shared / "models" / f"stories260K.{suffix}" for suffix in ("gguf", "expected.json"))
    with pumice.load(model_path, backend="mlx", kv_type=kv_type) as model:
        for case, n in zip(json.loads(expected_path.read_text()), lengths, strict=False):
            found = model.generate(case["prompt"], max_tokens=n, temperature=0)
            assert found.tokens == case["greedy_tokens"][:n]
