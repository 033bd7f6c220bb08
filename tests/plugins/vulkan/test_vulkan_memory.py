"""Memory of devices: what is asked for before a model is placed, and what is given back when a load fails."""

import importlib
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from gguf_files import tiny_llama
from pumice.demo import demo_model_path
from pumice.engine.placement.placement import layer_bytes
from pumice.gguf import GGMLType
from pumice_vulkan import backend
from pumice_vulkan.device import Device, list_devices, open_device
from pumice_vulkan.memory import N_STAGING, Weights
from pumice_vulkan.program import DeviceProgram
from tiny_models import ATTENTION, EXPERTS, tiny

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines", "unmeasured_steps")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the opening and closing of the backend's devices."""
    events: list[str] = []
    open_device = backend.open_device

    def noting(driver: str, index: int) -> Device:
        device = open_device(driver, index)
        close = device.close
        monkeypatch.setattr(device, "close", lambda: (close(), events.append("closed")))
        events.append("opened")
        return device

    monkeypatch.setattr(backend, "open_device", noting)
    return events


def test_footprints_are_what_weights_and_caches_take() -> None:
    with pumice.load(demo_model_path(), backend="vulkan", kv_type="q8_0", n_ctx=4096) as model:
        runner: Any = model.engine.runner
        ((_, first),) = [pair for pair in runner.placed.backends if pair[0] == "vulkan"]
        nodes = runner.placed.main.graph.nodes
        sizes = layer_bytes(nodes, lambda held: first.footprint(held, runner.limits), several=False)
        (shared,) = first._opened
        taken = shared.weights.nbytes + shared.cache.nbytes
    assert 0.9 * taken < sum(sizes.values()) < 1.2 * taken


def test_a_load_that_fails_on_the_second_device_closes_both(tmp_path: Path, opened: Any, monkeypatch: Any) -> None:
    make = DeviceProgram.__init__

    def failing(self: DeviceProgram, *arguments: Any) -> None:
        make(self, *arguments)
        if arguments[1].device:
            raise pumice.BackendError("no memory")

    monkeypatch.setattr(DeviceProgram, "__init__", failing)
    with pytest.raises(pumice.BackendError, match="no memory"):
        pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="vulkan", config={"vulkan": {"devices": [0, 0]}})
    assert opened == ["opened", "opened", "closed", "closed"]


@pytest.mark.parametrize("wrong", [{"profile": "report.json"}, {"devices": [0, 99]}])
def test_wrong_options_leave_no_device_open(tmp_path: Path, opened: Any, monkeypatch: Any, wrong: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_text("{}")
    with pytest.raises(pumice.BackendError):
        pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="vulkan", config={"vulkan": wrong})
    assert opened == ["opened", "closed"]


def test_a_device_may_be_named_by_its_uuid(tmp_path: Path) -> None:
    (first, *_) = list_devices()
    path = tiny_llama(tmp_path / "tiny.gguf")
    for name in (f"GPU-{first.uuid}", first.uuid[:13].upper(), "0"):
        pumice.load(path, backend="vulkan", config={"vulkan": {"devices": [name]}}).close()
    with pytest.raises(pumice.BackendError, match="no device has a UUID that begins with 'GPU-zz'; available: "):
        pumice.load(path, backend="vulkan", config={"vulkan": {"device": "GPU-zz"}})


def test_a_model_uses_no_more_memory_than_configured() -> None:
    limited = backend.VulkanBackend(backend.VulkanOptions(memory="300MiB"))
    assert limited.free_memory() == [300 * 2**20 - backend.RESERVE]
    limited.close()
    with pytest.raises(pumice.ConfigError, match="'much' is not a size of memory"):
        backend.VulkanBackend(backend.VulkanOptions(memory="much")).free_memory()


@pytest.mark.nightly
def test_a_random_model_takes_what_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of bench/random_placements.py, which enforces the limit of the device's memory."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "bench")
    cases = importlib.import_module("random_placements")
    case = replace(cases.random_case(random.Random("1 0")), share=0.9)
    cases.write_model(case, tmp_path / "model.gguf", 0)
    assert "layers" in cases.run(case, tmp_path / "model.gguf")


def write_experts(path: Path, monkeypatch: pytest.MonkeyPatch, type: str) -> Path:
    """Write a model with three layers of eight experts, and return its path."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "bench")
    cases = importlib.import_module("random_placements")
    layer = f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}"
    sizes = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256}
    model = tiny("qwen3moe", layer, n_layer=3, dims={"n": 256, "d": 64, "f": 256, "E": 8}, **sizes)
    cases.write_model(cases.Case("experts", model, GGMLType[type], {}, 1.0), path, 1)
    return path


def test_an_upload_that_fails_leaves_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice_vulkan.memory.STAGING_BYTES", 2**12)
    with open_device("native") as device:
        weights = Weights(device)
        with monkeypatch.context() as failing:
            failing.setattr("pumice_vulkan.memory.np.copyto", lambda *_: time.sleep(0.05) or {}["a page"])
            with pytest.raises(KeyError, match="a page"):
                weights.put("x", lambda: [np.zeros(2 * N_STAGING * 2**10, np.uint32)])
            weights.close()
        assert device.allocated_bytes == 0


def test_experts_that_the_device_reads_in_host_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results equal those from device memory bit by bit, and the bytes on each side are those of the plan."""
    path = write_experts(tmp_path / "model.gguf", monkeypatch, "F16")
    options: dict[str, Any] = {"n_ctx": 64, "n_batch": 48, "n_parallel": 1, "backend": "vulkan"}
    options |= {"config": {"vulkan": {"prepare": "never"}}}
    prompt = [(7 * i + 3) % 31 for i in range(40)]

    def results(**more: Any) -> tuple[NDArray[np.float32], list[int], dict[str, dict[str, int]]]:
        plan = pumice.plan(path, **options, **more)
        with pumice.load(path, **options, **more) as loaded:
            parts = {device.name: dict(device.parts) for device in loaded.facts.devices}
            assert parts == {device.name: dict(device.parts) for device in plan.devices}
            tokens = list(loaded.generate(prompt, max_tokens=8, temperature=0).tokens)
            return loaded.logits(prompt), tokens, parts

    logits, tokens, parts = results()
    read_logits, read_tokens, read_parts = results(n_cpu_moe=-1)
    np.testing.assert_array_equal(read_logits, logits)
    assert read_tokens == tokens
    assert parts["vulkan0"]["experts"] == read_parts["cpu"]["experts"] > 0 == read_parts["vulkan0"].get("experts", 0)
