"""Tokens of llama's relatives in one dispatch: the shape that each has, and experts beside NumPy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.paper_device import PaperDevice

import pumice
from llama_relatives import PUBLISHED, RELATIVES, Relative
from pumice.gguf import GGMLType
from pumice_vulkan.device import DeviceDescription, list_devices
from pumice_vulkan.persistent import PersistentPath, find_decoder
from pumice_vulkan.persistent.shape import shapes
from pumice_vulkan.profiles import PROFILES
from pumice_vulkan.shaders import shader
from reference_models import error
from tools import gpu_profiles

IDS = [(7 * i + 3) % 300 for i in range(12)]


def described() -> DeviceDescription:
    """A GPU of the largest kind, with all features that the shader needs."""
    description = PROFILES["hopper-h200"].described()
    return replace(description, features=description.features | {"buffer_address"})


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        *((model, "persistent.any_q4_k_m") for model in PUBLISHED.values()),
        *((RELATIVES[name], "persistent.any_q4_k_m") for name in ("llama", "granite", "qwen2", "gemma")),
        (RELATIVES["qwen3"], "persistent.any_q4_0"),
        (RELATIVES["granitemoe"], "persistent.experts_q4_k_m"),
        (replace(RELATIVES["granitemoe"], four=GGMLType.Q8_0, others={}), "persistent.experts_q8_0"),
    ],
    ids=[*PUBLISHED, "llama", "granite", "qwen2", "gemma", "qwen3", "granitemoe", "granitemoe-q8_0"],
)
def test_relatives_have_a_shape(tmp_path: Path, model: Relative, kernel: str) -> None:
    """A GPU of the largest kind computes them, with shared memory that all of its kind have."""
    path = model.write(tmp_path / "model.gguf", most_rows=8)
    with gpu_profiles.captured(path) as (segment, _, limits), PaperDevice(described()) as device:
        decoder = find_decoder(segment)
        assert decoder is not None
        (shape,) = shapes(decoder, limits, device)
        assert shape.kernel == kernel
        assert shape.groups == 128
        assert shape.shared_bytes <= 48 * 1024
        assert shader(shape.kernel)
        assert not list(shapes(decoder, replace(limits, kv_type="f32"), device))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"four": GGMLType.Q4_1}),  # a type that the shader lacks
        ("granitemoe", {"used": 8, "expert_ffn": 4096, "width": 2048}),  # more gated rows than a subgroup requests
        ("granitemoe", {"used": 5, "expert_ffn": 1024, "width": 1536}),  # its rows would be of two experts
        ("llama", {"ffn": 18944}),  # more chunks of a row than subgroups
        ("llama", {"dim": 512}),  # more values of a head than a subgroup has room for
    ],
)
def test_other_models_have_none(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    path = replace(RELATIVES[name], **changes).write(tmp_path / "model.gguf")
    with gpu_profiles.captured(path) as (segment, _, limits), PaperDevice(described()) as device:
        decoder = find_decoder(segment)
        assert decoder is None or not list(shapes(decoder, limits, device))


@pytest.fixture
def used(vulkan_device: None, kept_pipelines: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel of each token that was one dispatch."""
    if not list_devices()[0].software:
        pytest.skip("compiled for tests with the shape of a software device")
    kernels: list[str] = []
    works = PersistentPath.works

    def noted(path: PersistentPath, rows: int = 1) -> bool:
        kernels.extend([path._working[rows].kernel] if works(path, rows) else [])
        return works(path, rows)

    monkeypatch.setattr(PersistentPath, "works", noted)
    return kernels


def load(path: Path, **options: Any) -> Any:
    section = {"persistent": "always", "activations": "int8", "driver": "native", "rows_in_one_dispatch": 1}
    return pumice.load(path, backend="vulkan", n_ctx=256, n_batch=1, config={"vulkan": section}, **options)


def test_tokens(tmp_path: Path, used: list[str]) -> None:
    """Logits are those of NumPy, as far as int8 activations allow, and each token is one dispatch."""
    path = RELATIVES["granitemoe"].write(tmp_path / "model.gguf")
    with pumice.load(path, backend="numpy", n_ctx=256) as model:
        expected = model.logits(IDS)
    with load(path) as model:
        assert error(model.logits(IDS), expected) < 1e-3
    assert len(used) >= len(IDS)
    assert set(used) == {"persistent.tiny_experts"}


def test_experts_that_the_device_reads_in_host_memory(tmp_path: Path, used: list[str]) -> None:
    """Logits equal those from device memory bit by bit."""
    path = RELATIVES["granitemoe"].write(tmp_path / "model.gguf")
    with load(path) as model:
        expected = model.logits(IDS)
    with load(path, n_cpu_moe=-1, moe_in_place="on") as model:
        assert any(device.parts["experts"] for device in model.facts.devices if device.name == "cpu")
        np.testing.assert_array_equal(model.logits(IDS), expected)
    assert set(used) == {"persistent.tiny_experts"}
    assert len(used) >= 2 * len(IDS)
