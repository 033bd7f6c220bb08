"""Tokens of llama's relatives in one dispatch: the shape that each has on a large GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.paper_device import PaperDevice

from llama_relatives import PUBLISHED, RELATIVES, Relative
from pumice.gguf import GGMLType
from pumice_vulkan.device import DeviceDescription
from pumice_vulkan.persistent import find_decoder
from pumice_vulkan.persistent.shape import shapes
from pumice_vulkan.profiles import PROFILES
from pumice_vulkan.shaders import shader
from tools import gpu_profiles


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
        ("granitemoe", {"used": 8, "expert_ffn": 2304}),  # more gated rows than a subgroup requests
        ("granitemoe", {"used": 5, "expert_ffn": 1024, "width": 1536}),  # its rows would be of two experts
        ("llama", {"ffn": 18944}),  # more chunks of a row than subgroups
        ("llama", {"dim": 512}),  # more values of a head than a subgroup has room for
        ("llama", {"dim": 4, "heads": 128, "kv_heads": 64}),  # fewer values of a head than a read has
    ],
)
def test_other_models_have_none(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    path = replace(RELATIVES[name], **changes).write(tmp_path / "model.gguf", most_rows=8)
    with gpu_profiles.captured(path) as (segment, _, limits), PaperDevice(described()) as device:
        decoder = find_decoder(segment)
        assert decoder is None or not list(shapes(decoder, limits, device))
