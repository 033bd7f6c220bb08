"""The MLX backend as the engine and a user meet it: found, chosen, used by several sequences, out of memory."""

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

import pumice
from graphs import limits
from nightly import crossed
from pumice.config import load_config
from pumice.engine.placement.backends import backend_line
from pumice.gguf import block_size, dequantize
from pumice.graph import KVState, RecurrentState
from pumice.plugin import BackendError, GGMLType, Weight
from pumice.registry import get_registry
from pumice_mlx import weights as mlx_weights
from pumice_mlx.backend import MlxBackend
from pumice_mlx.device import KERNELS, errors, keep_kernels
from pumice_mlx.kv_cache import KVCache, state_bytes
from pumice_mlx.weights import Weights, matrix_bytes
from random_weights import random_rows
from tiny_models import IDS, N_CTX
from waiting import wait_until

#: Every quantized type that the core decodes.
QUANTIZED = [type for type in GGMLType if block_size(type) > 1]
FLOAT = {"mlx": {"activations": "float32"}}


def test_devices() -> None:
    (device,) = MlxBackend.devices()
    assert device.kind in ("cpu", "gpu")
    assert device.memory_bytes > 0
    assert "mlx" in device.details


@pytest.mark.parametrize(("system", "machine", "chosen"), [("Darwin", "arm64", True), ("Linux", "aarch64", False)])
def test_auto_takes_it_on_apple_machines_alone(monkeypatch: Any, system: str, machine: str, chosen: bool) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("pumice_cpu.backend.usable", lambda: None)  # whose kernels are not those of that machine
    config = load_config({})
    names = [name for name, _ in backend_line(get_registry(config), config)]
    assert ("mlx" in names) == chosen
    named = load_config({"backend": "mlx"})
    assert [name for name, _ in backend_line(get_registry(named), named)] == ["mlx", "cpu", "numpy"]


@pytest.mark.parametrize("text", ["[metal::malloc] Attempting to allocate 9 bytes", "std::bad_alloc: out of memory"])
def test_no_memory_is_an_error_that_says_what_to_do(text: str) -> None:
    with pytest.raises(BackendError, match=r"mlx: loading: .*smaller --ctx-size"), errors("loading"):
        raise RuntimeError(text)


def test_compiled_kernels_are_kept_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PUMICE_CACHE", raising=False)
    monkeypatch.setenv(KERNELS, "elsewhere")
    keep_kernels()
    assert os.environ[KERNELS] == "elsewhere"
    monkeypatch.delenv(KERNELS)
    (tmp_path / "pumice").mkdir(mode=0o700)
    (tmp_path / "pumice").chmod(0o777)
    keep_kernels()
    assert KERNELS not in os.environ, "others could write kernels"
    (tmp_path / "pumice").chmod(0o700)
    keep_kernels()
    folder = Path(os.environ[KERNELS])
    assert folder.parent == tmp_path / "pumice" / "mlx"
    assert importlib.metadata.version("mlx") in folder.name
    with pytest.raises(BackendError, match=f"; delete {folder}, whose files are damaged"), errors("computing a step"):
        raise RuntimeError("Failed to load compiled qmm_sm80 kernel: .")


@pytest.mark.parametrize(
    ("type", "activations"),
    crossed([*QUANTIZED, GGMLType.F16, GGMLType.BF16, GGMLType.F32], [mx.float32, mx.float16]),
    ids=str,
)
def test_footprints_are_what_weights_take(type: GGMLType, activations: mx.Dtype) -> None:
    weight = random_weight(type, (6, 512))
    assert Weights(activations).matrix(weight).nbytes == matrix_bytes(weight, activations)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q5_1", "q4_0"])
def test_footprints_are_what_states_take(kv_type: str) -> None:
    state, bounds = KVState("kv", 2, 64, 32), limits(kv_type=kv_type)
    cache = KVCache(state, bounds)
    cache.reserve(bounds.n_blocks[0])
    assert sum(array.nbytes for array in cache.arrays) == state_bytes(state, bounds)
    assert MlxBackend().footprint(RecurrentState("conv", (3, 8)), bounds) == 4 * 4 * 3 * 8


@pytest.mark.parametrize("type", QUANTIZED, ids=str)
def test_a_part_of_the_rows_in_several_chunks(type: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlx_weights, "CHUNK", 1024)
    weight = random_weight(type, (9, 512)).rows(1, 8)
    matrix, expected = Weights(mx.float32).matrix(weight), weight.dequantize()
    scale = np.abs(expected).max()
    rows = np.array(matrix.rows(mx.array([[6, 0], [3, 3]])))
    np.testing.assert_allclose(rows, expected[[[6, 0], [3, 3]]], rtol=1e-5, atol=1e-6 * scale)
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    y = np.array(matrix.product(mx.array(x)))
    np.testing.assert_allclose(y, x @ expected.T, rtol=1e-5, atol=3e-6 * np.abs(x @ expected.T).max())


def random_weight(type: GGMLType, shape: tuple[int, int]) -> Weight:
    data = random_rows(np.random.default_rng(1), type.name, *shape)

    class Source:
        nbytes = data.nbytes

        def __init__(self) -> None:
            self.type, self.shape, self.data = type, shape, data

        def dequantize(self) -> Any:
            return dequantize(data, type)

        def release(self, start: int = 0, end: int | None = None) -> None:
            pass

    return Weight("w", shape, source=Source())


@pytest.mark.parametrize("name", ["gemma3", "mamba", "deepseek2-v3", "gpt-oss"])
def test_sequences_beside_each_other(tiny_file: Any, name: str) -> None:
    """Prompts of several lengths in small steps, more than fit at once, with blocks that are shared and taken away."""
    prompts = [IDS, IDS[:7], [*IDS[:20], 5], IDS[::-1] * 2, IDS[3:4]]
    texts = []
    for backend in ("numpy", "mlx"):
        options = {"backend": backend, "kv_type": "f32", "n_ctx": 128, "n_batch": 16, "n_parallel": 3}
        with pumice.load(tiny_file(name), config=FLOAT if backend == "mlx" else {}, **options) as model:
            texts.append([each.tokens for each in model.generate_many(prompts, max_tokens=30, temperature=0)])
    assert texts[0] == texts[1]


def test_memory_is_given_back(tiny_file: Any) -> None:
    """Memory does not grow from one load to the next, but for constants that the first one leaves."""

    def load() -> int:
        with pumice.load(tiny_file("gemma3"), backend="mlx", n_ctx=N_CTX) as model:
            model.logits(IDS)
            return mx.get_active_memory()

    used = load()
    before = mx.get_active_memory()
    assert used > before
    load()
    wait_until(lambda: mx.get_active_memory() <= before)


def test_a_step_that_fails_leaves_the_others(tiny_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing operation is an error of one step; the next one gives what it gave before."""
    from pumice_mlx.ops import OPS

    with pumice.load(tiny_file("gemma3"), backend="mlx", kv_type="f32", n_ctx=N_CTX, config=FLOAT) as model:
        expected = model.logits(IDS)

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("[malloc] Unable to allocate 7 bytes")

        with monkeypatch.context() as patch:
            patch.setitem(OPS, "get_rows", fail)
            with pytest.raises(BackendError, match=r"mlx: computing a step: .*allocate 7 bytes; set"):
                model.logits(IDS)
        np.testing.assert_allclose(model.logits(IDS), expected, rtol=1e-5, atol=1e-5)
