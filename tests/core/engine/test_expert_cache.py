"""Copies of experts on a GPU, ``moe_cache_mib``: the same texts as without, by fewer experts of the host."""

import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import pumice
from gpu_plugins import DenseGpu, gpu_plugin
from pumice.engine.placement.expert_cache import CachedMixture, ExpertCache
from pumice.plugin import Weight
from pumice_numpy import NumpyBackend
from tiny_models import ATTENTION, EXPERTS, tiny

OPTIONS: dict[str, Any] = {"n_ctx": 64, "n_batch": 16, "n_parallel": 1}
N_EXPERT = 16
PROMPT = [5, 6, 7, 9, 11]


class Gpu(DenseGpu):
    def footprint(self, held: Any, limits: Any) -> int:
        """Return a thousand times the bytes of copies, so that MiB suit a tiny model."""
        n_bytes = super().footprint(held, limits)
        return 1000 * n_bytes if isinstance(held, Weight) and "exps" in held.name else n_bytes


class Fixed(Gpu):
    renews_weights = False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    layer = f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}"
    sizes = {"expert_count": N_EXPERT, "expert_used_count": 2, "expert_feed_forward_length": 96}
    return tiny("qwen3moe", layer, n_layer=3, dims={"d": 32, "E": N_EXPERT}, **sizes).write(tmp_path / "model.gguf")


def load(path: Path, cache: int | str, gpu: type[NumpyBackend] = Gpu, **more: Any) -> pumice.Model:
    options = {**OPTIONS, "n_cpu_moe": -1, "moe_cache_mib": cache, **more}
    return pumice.load(path, config={"backends": ["gpu", "numpy"]}, plugins=[gpu_plugin(gpu)], **options)


def text(model: pumice.Model) -> list[int]:
    return model.generate(PROMPT, max_tokens=24, temperature=0).tokens


def test_same_text_by_copies(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pumice")
    with load(path, 0) as model:
        expected = text(model)
    put: list[int] = []
    original = CachedMixture.put

    def counted(mixture: CachedMixture, expert: int, *arguments: Any) -> None:
        put.append(expert)
        original(mixture, expert, *arguments)

    needed = 3 * 3 * 2 * 1000 * 64 * 96 * 4 // 2**20 + 1  # layers, matrices, and one of zeros
    with patch.object(CachedMixture, "put", counted), load(path, 3 * needed) as model:
        parts = {device.name: device.parts for device in model.facts.devices}
        assert parts["gpu0"]["expert_cache"] > 0
        assert "experts" not in parts["gpu0"]
        assert [text(model) for _ in range(2)] == [expected] * 2
        assert put, "other experts get the slots"
    (line,) = [record.message for record in caplog.records if "were on the GPU" in record.message]
    assert 0 < int(line.split()[1]) < 100


def test_all_experts_have_copies(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pumice")
    with load(path, 0) as model:
        expected = text(model)
    with load(path, "100GiB") as model:
        assert text(model) == expected
    assert "100 % of the chosen experts were on the GPU" in caplog.text


def test_only_some_layers(path: Path) -> None:
    with load(path, 0, n_cpu_moe=1) as model:
        expected = text(model)
    with load(path, 4000, n_cpu_moe=1) as model:
        assert text(model) == expected
        assert all("experts" in device.parts for device in model.facts.devices)


def test_a_plan_says_what_copies_take(path: Path) -> None:
    options = {**OPTIONS, "n_cpu_moe": -1, "memory": "1GiB", "ram": "1GiB", "measure": False}
    parts = []
    for n in (0, "200MiB"):
        plan = pumice.plan(path, moe_cache_mib=n, **options)
        assert plan.fits
        parts.append({device.name: dict(device.parts) for device in plan.devices})
    without, cached = parts
    assert without["gpu0"].get("expert_cache") is None
    per_expert = without["cpu"]["experts"] // N_EXPERT  # of all layers
    assert cached["gpu0"]["expert_cache"] == without["cpu"]["experts"] + per_expert, "all, and one of zeros"
    assert cached["cpu"]["experts"] == without["cpu"]["experts"]


def test_copies_that_leave_no_room_for_layers_are_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {**OPTIONS, "n_cpu_moe": -1, "memory": "1GiB", "ram": "1GiB", "measure": False}
    pumice.plan(path, moe_cache_mib="6GiB", **options)
    assert "no experts are cached: 6.0 GiB leave no room for layers: the GPU has 768.0 MiB free" in caplog.text


@pytest.mark.parametrize("value", [-1, "much", 2**21, 1.5])
def test_wrong_sizes_are_refused(path: Path, value: Any) -> None:
    with pytest.raises(pumice.ConfigError, match="moe_cache_mib"):
        load(path, value).close()


def test_too_little_memory_is_refused(path: Path) -> None:
    with pytest.raises(
        pumice.ConfigError, match=r"1 MiB have no room for an expert of each of 3 layers; give at least"
    ) as error:
        load(path, 1).close()
    least = int(str(error.value).partition("at least ")[2].partition(",")[0])
    load(path, least).close()
    with pytest.raises(pumice.ConfigError, match=f"at least {least}"):
        load(path, least - 1).close()


def test_a_line_says_why_no_expert_is_cached(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(path, 4000, n_cpu_moe=0).close()
    assert "no experts of a layer on a GPU stay in host memory" in caplog.text
    load(path, 4000, Fixed).close()
    assert "the backend of this GPU cannot replace single matrices" in caplog.text
    pumice.load(path, backend="numpy", moe_cache_mib=4000, **OPTIONS).close()
    assert "no GPU is in use" in caplog.text


def test_experts_replace_those_that_are_chosen_less_often() -> None:
    mixture = CachedMixture(6, 2)
    cache = ExpertCache({"a": mixture})
    cache._count(mixture, np.array([[4, 5]] * 8 + [[4, 0]] * 8, np.int32))
    assert cache.wishes() == [(mixture, 4, 1)], "expert 5 was chosen as often as 0"
    mixture.put(4, 1, lambda weight: pytest.fail("there are no weights"))
    assert mixture.slots.tolist() == [0, 2, 2, 2, 1, 2]
    assert mixture.on_host.tolist() == [-1, 1, 2, 3, -1, 5]
    assert cache.wishes() == [], "nothing was counted since"
    assert cache.n_found == 8
