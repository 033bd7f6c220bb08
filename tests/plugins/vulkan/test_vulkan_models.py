"""Whole models on the Vulkan backend: against llama.cpp's logits and text, and against themselves in other chunks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.paper_device import PaperDevice

import pumice
from demo_models import TYPES, write_demo_model
from gguf_files import tiny_llama
from nightly import variants
from pumice.gguf import GGMLType
from pumice_vulkan import VulkanBackend
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.device import list_devices
from pumice_vulkan.program import DeviceProgram
from reference_models import SHARED_IDS, SHARED_MODELS, check_greedy, error
from tiny_models import IDS, N_CTX
from tiny_zoo import CHUNKED, CLUSTERS, LARGEST, LIMITS, SPANNING, ZOO
from tools import gpu_profiles

DAILY_MODELS = ["llama-dense"]
DAILY_TYPES = ["Q4_K"]
FAMILY_CLUSTERS = [models for models in CLUSTERS.values() if set(models) & set(CHUNKED)]


pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines", "unmeasured_steps")


def logits(path: Path, ids: list[int], n_batch: int = 32, activations: str = "float", driver: str = "auto") -> Any:
    config = {"vulkan": {"activations": activations, "driver": driver}}
    with pumice.load(path, backend="vulkan", kv_type="f32", n_ctx=N_CTX, n_batch=n_batch, config=config) as model:
        return model.logits(ids)


@pytest.mark.parametrize("name", variants(SHARED_MODELS, DAILY_MODELS))
def test_llama_cpp_test_models(shared: Path, name: str) -> None:
    path = shared / "archs" / f"{name}.gguf"
    with np.load(shared / "archs" / "expected_logits.npz") as expected:
        assert error(logits(path, SHARED_IDS), expected[name]) < 1e-5
        assert error(logits(path, SHARED_IDS, 4, "int8"), expected[name]) < 1e-4


@pytest.mark.parametrize("name", variants(LARGEST.values(), SPANNING))
def test_tiny_models(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids), tiny_logits[name]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("name", variants(LARGEST.values(), SPANNING))
def test_single_steps_of_tiny_models_have_kernels(tiny_file: Any, name: str) -> None:
    with gpu_profiles.captured(tiny_file(name)) as compiled, PaperDevice(list_devices()[0]) as device:
        program = DeviceProgram(gpu_profiles.shared_on(device), *compiled)
        program._shared.kernels.compile(program.lowered.dispatches(Bucket(1, 1, lone=True)))
        assert device.pipelines
        program.close()


@pytest.mark.parametrize("name", [next(name for name in CHUNKED if name in models) for models in FAMILY_CLUSTERS])
def test_tiny_models_token_by_token(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids, 1), tiny_logits[name]) < 1e-5


@pytest.mark.parametrize("name", variants(["gemma3", "deepseek2-v3", "gpt-oss", "mamba"], ["deepseek2-v3", "mamba"]))
def test_chunks_do_not_change_logits(tiny_file: Any, tiny_logits: Any, driver: str, name: str, rounding: float) -> None:
    chunked, whole = (logits(tiny_file(name), IDS, n_batch, driver=driver) for n_batch in (5, 32))
    assert error(chunked, whole) < (LIMITS.get(name, 1e-5) if rounding else 1e-8)
    assert ZOO[name].ids == IDS
    assert error(whole, tiny_logits[name]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("kv_type", variants(["q8_0", "q4_0"], ["q4_0"]))
def test_rotated_caches(tmp_path: Path, kv_type: str) -> None:
    path, ids = tiny_llama(tmp_path / "model.gguf", dim=256), [(7 * i + 3) % 300 for i in range(70)]
    with pumice.load(path, backend="numpy", kv_type=kv_type, n_ctx=128) as model:
        expected = model.logits(ids)
    for n_batch in (1, 5, 64):
        options = {"n_ctx": 128, "n_batch": n_batch, "config": {"vulkan": {"activations": "float"}}}
        with pumice.load(path, backend="vulkan", kv_type=kv_type, **options) as model:
            assert error(model.logits(ids), expected) < 1e-4


@pytest.mark.parametrize("kv_type", variants(["f32", "q8_0"], ["q8_0"]))
def test_drivers_pick_the_tokens_that_numpy_picks(demo_model: Any, driver: str, kv_type: str, rounding: float) -> None:
    options: dict[str, Any] = {"n_ctx": 64, "kv_type": kv_type}
    with pumice.load(demo_model("Q8_0"), backend="vulkan", config={"vulkan": {"driver": driver}}, **options) as model:
        tokens = model.generate("Once upon a time", max_tokens=16, temperature=0).tokens
    with pumice.load(demo_model("Q8_0"), backend="numpy", **options) as model:
        check_greedy(model, model.tokenizer.tokenize("Once upon a time"), tokens, rounding)


TOLD = [("f32", -1, (60, 20, 20)), ("f16", 3, (40,))]
LONGER = [("f32", -1, (200, 30, 30)), ("f16", -1, (80,)), ("f16", 3, (80,))]


@pytest.mark.parametrize(("kv_type", "n_gpu_layers", "lengths"), variants([*TOLD, *LONGER], TOLD))
def test_the_text_of_llama_cpp(shared: Path, kv_type: str, n_gpu_layers: int, lengths: tuple[int, ...]) -> None:
    model_path, expected_path = (shared / "models" / f"stories260K.{suffix}" for suffix in ("gguf", "expected.json"))
    options: dict[str, Any] = {"backend": "vulkan", "kv_type": kv_type, "n_gpu_layers": n_gpu_layers, "n_batch": 32}
    with pumice.load(model_path, **options) as model:
        assert "vulkan" in model.backends
        for case, n in zip(json.loads(expected_path.read_text()), lengths, strict=False):
            assert model.generate(case["prompt"], max_tokens=n, temperature=0).tokens == case["greedy_tokens"][:n]


def test_layers_are_shared_by_devices(tmp_path: Path, tiny_logits: Any) -> None:
    """The same device twice is two devices, whose results equal those of one bit by bit."""
    path = ZOO["gemma2"].write(tmp_path / "model.gguf")
    found = []
    for devices in ([0], [0, 0]):
        config = {"vulkan": {"devices": devices, "activations": "float"}}
        with pumice.load(path, backend="vulkan", kv_type="f32", n_ctx=N_CTX, n_batch=32, config=config) as model:
            assert [segment.device for segment in model.engine.runner.placed.main.segments] == list(range(len(devices)))
            found.append(model.logits(IDS))
    np.testing.assert_array_equal(found[0], found[1])
    assert error(found[1], tiny_logits["gemma2"]) < 1e-5


@pytest.mark.parametrize("devices", variants([[0, 0], [0, 0, 0]], [[0, 0, 0]]))
def test_chunks_of_a_prompt_are_computed_by_all_devices_at_once(tmp_path: Path, devices: list[int]) -> None:
    path = ZOO["gemma2"].write(tmp_path / "model.gguf")
    prompts, texts = [IDS * 3, IDS[::-1] * 2, IDS[:5]], []
    for used in ([0], devices):
        config = {"vulkan": {"devices": used, "activations": "float"}}
        options = {"backend": "vulkan", "kv_type": "f32", "n_ctx": 256, "n_batch": 8, "n_parallel": 3}
        with pumice.load(path, **options, config=config) as model:
            texts.append([each.tokens for each in model.generate_many(prompts, max_tokens=20, seed=1)])
    assert texts[0] == texts[1]


def test_layers_without_room_go_to_the_next_backend(
    tmp_path: Path, tiny_logits: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = ZOO["gemma2"].write(tmp_path / "model.gguf")
    monkeypatch.setattr("pumice.engine.placement.placement.layers_that_fit", lambda sizes, free: 2)
    with pumice.load(path, backend="vulkan", kv_type="f32", n_ctx=N_CTX, n_batch=32) as model:
        assert error(model.logits(IDS), tiny_logits["gemma2"]) < 1e-4
        assert set(model.backends) == {"vulkan", "cpu"}
    assert "memory for 2 of 3 layers; the others run on cpu" in caplog.text


@pytest.mark.parametrize(("in_place", "backends"), [("on", {"vulkan"}), ("off", {"vulkan", "cpu"})])
def test_experts_in_host_memory(tmp_path: Path, tiny_logits: Any, in_place: str, backends: set[str]) -> None:
    path = ZOO["qwen3moe"].write(tmp_path / "model.gguf")
    options = {"kv_type": "f32", "n_ctx": N_CTX, "n_batch": 32, "n_cpu_moe": 1, "moe_in_place": in_place}
    with pumice.load(path, backend="vulkan", **options) as model:
        assert error(model.logits(IDS), tiny_logits["qwen3moe"]) < 1e-4
        assert set(model.backends) == backends
        assert len(model.generate(IDS, max_tokens=5, temperature=0).tokens) == 5


def test_a_weight_too_large_for_a_buffer_goes_to_the_next_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of embeddings, which is also the output's matrix, is the largest of the demo model's."""
    open_one = VulkanBackend._open_one

    def with_small_buffers(backend: VulkanBackend, index: int) -> Any:
        shared = open_one(backend, index)
        shared.device.description = replace(shared.device.description, max_buffer_bytes=550_000)
        return shared

    ids, options = [(37 * i + 3) % 500 for i in range(12)], {"kv_type": "f32", "n_ctx": N_CTX, "n_batch": 4}
    with pumice.load(backend="numpy", **options) as model:
        expected = model.logits(ids)
    monkeypatch.setattr("pumice_vulkan.memory.STAGING_BYTES", 2**16)
    monkeypatch.setattr(VulkanBackend, "_open_one", with_small_buffers)
    with pumice.load(backend="vulkan", **options) as model:
        assert error(model.logits(ids), expected) < 1e-3
        assert set(model.backends) == {"vulkan", "cpu"}


@pytest.mark.parametrize("type", variants(TYPES, DAILY_TYPES))
def test_every_quantization_type(tmp_path: Path, type: str) -> None:
    """Single tokens take fused kernels; these and others have the results of the NumPy backend."""
    path = write_demo_model(tmp_path / "model.gguf", GGMLType[type], n_layer=2)
    ids = [(37 * i + 3) % 500 for i in range(6)]
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX) as model:
        expected = model.logits(ids)
    assert error(logits(path, ids, 1), expected) < 1e-5
    assert error(logits(path, ids, 4, "int8"), expected) < 1e-3
