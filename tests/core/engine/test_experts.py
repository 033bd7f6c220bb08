"""Experts that a GPU lacks room for stay in host memory, where that gives more layers room; texts do not change."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pumice
from installed_plugins import passed
from pumice.plugin import Weight
from pumice.plugin.unstable import Limits, State
from pumice_numpy import NumpyBackend
from tiny_models import ATTENTION, EXPERTS, tiny

OPTIONS: dict[str, Any] = {"n_ctx": 32, "n_batch": 8, "n_parallel": 1}


def gpu(free: int | None, reads: bool) -> ModuleType:
    """A plugin with a GPU of so many free bytes, which ``reads`` weights in host memory or not."""

    class Gpu(NumpyBackend):
        offload = True
        reads_in_place = reads

        def footprint(self, held: Weight | State, limits: Limits) -> int:
            return 0 if limits.is_in_place(held.name) else super().footprint(held, limits)

        def host_footprint(self, weight: Weight, limits: Limits) -> int:
            return weight.nbytes if limits.is_in_place(weight.name) else 0

        def free_memory(self) -> list[int | None]:
            return [free]

    return passed("backends", gpu=Gpu)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    layer = f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}"
    sizes = {"expert_count": 16, "expert_used_count": 2, "expert_feed_forward_length": 96}
    return tiny("qwen3moe", layer, n_layer=4, dims={"d": 32, "E": 16}, **sizes).write(tmp_path / "model.gguf")


def load(path: Path, free: int | None, reads: bool = True, **more: Any) -> pumice.Model:
    config = {"backends": ["gpu", "numpy"]}
    return pumice.load(path, config=config, plugins=[gpu(free, reads)], **OPTIONS | more)


def experts(model: pumice.Model) -> dict[str, int]:
    return {device.name: device.parts.get("experts", 0) for device in model.facts.devices}


def test_experts_stay_in_host_memory(path: Path) -> None:
    with load(path, None) as model:
        (whole,) = [device for device in model.facts.devices if device.is_gpu]
        text = model.generate([5, 6, 7], max_tokens=8, temperature=0).tokens
    room = whole.bytes - whole.parts["experts"] // 2 + 2**18  # the rest is for activations of more programs
    with load(path, room, moe_in_place="off") as model:
        found = experts(model)
        on_gpu = next(device for device in model.facts.devices if device.is_gpu)
        assert on_gpu.bytes <= room
        assert on_gpu.parts["attention"] == whole.parts["attention"]
        assert (found["numpy"] > 0, sum(found.values())) == (True, whole.parts["experts"])
        assert model.generate([5, 6, 7], max_tokens=8, temperature=0).tokens == text
    for said in ({"n_cpu_moe": 0}, {"n_cpu_ffn": 1}, {"override_tensors": ["no_such_tensor=CPU"]}):
        with load(path, room, **said) as model:
            on_gpu = next(device for device in model.facts.devices if device.is_gpu)
            assert on_gpu.parts["attention"] < whole.parts["attention"], "the user has said otherwise"


def test_experts_that_a_gpu_reads_in_host_memory(path: Path) -> None:
    """All layers are on the GPU, and as few experts as necessary beside it."""
    with load(path, None) as model:
        (whole,) = [device for device in model.facts.devices if device.is_gpu]
        text = model.generate([5, 6, 7], max_tokens=8, temperature=0).tokens
    layer = whole.parts["experts"] // 4
    room = whole.bytes - 2 * layer + 2**18  # the rest is for activations of more programs
    several: list[tuple[dict[str, Any], bool, int]] = [
        ({}, True, 2),
        ({"n_cpu_moe": 3}, True, 3),
        ({"n_cpu_moe": -1}, True, 4),
        ({"moe_in_place": "off"}, True, 0),
        ({}, False, 0),
    ]
    for options, reads, n_layers in several:
        with load(path, room, reads, **options) as model:
            assert (list(model.engine.runner.placed.backends_used) == ["gpu"]) is (n_layers > 0)
            if n_layers:
                assert experts(model) == {"gpu0": (4 - n_layers) * layer, "numpy": n_layers * layer}
            assert model.generate([5, 6, 7], max_tokens=8, temperature=0).tokens == text
    with load(path, room) as model:
        host = next(device for device in model.facts.devices if not device.is_gpu)
        assert host.parts["embeddings"] > 0, "a token needs a single row"


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"override_tensors": ["attn_q=CPU"]}, []),
        (
            {"override_tensors": ["attn_q=CPU", "blk.9.=GPU9"]},
            ["override_tensors: blk.9.=GPU9 has no effect: no tensor of the model has a matching name"],
        ),
        ({"main_gpu": 3}, ["main_gpu: 3 has no effect: split_mode is auto; it chooses a GPU with --split-mode none"]),
        ({"main_gpu": 3, "devices": ["none"]}, ["main_gpu: 3 has no effect: no GPU is in use"]),
        (
            {"n_gpu_layers": 99, "devices": ["none"]},
            ["n_gpu_layers: 99 has no effect: no GPU is in use; see `pumice devices`"],
        ),
    ],
)
def test_options_without_effect_are_named(
    path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], warnings: list[str]
) -> None:
    load(path, None, **settings).close()
    assert [text for text in caplog.messages if "effect" in text] == warnings
