"""Experts of host memory that are copied to a GPU for prompts, ``op_offload``: the same logits, computed there."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import pumice
from gpu_plugins import DenseGpu, gpu_plugin
from pumice.backend.step import Limits
from pumice.config import load_config
from pumice.engine.placement.expert_cache import OF_HOST
from pumice.engine.placement.expert_stream import PREFIX, StreamedMixture
from pumice.engine.placement.rates import Rates
from pumice.gguf import GGUFFile
from pumice.graph import Node, State, Weight
from pumice.planning.plan import plan_file
from pumice.registry import get_registry
from tiny_models import ATTENTION, EXPERTS, LLAMA, tiny

OPTIONS: dict[str, Any] = {"n_ctx": 128, "n_batch": 48, "n_parallel": 1, "n_cpu_moe": -1}
N_EXPERT = 16
PROMPT = [5 + i * i % 23 for i in range(100)]  # two steps of 48 tokens, and one of 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    layer = f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}"
    sizes = {"expert_count": N_EXPERT, "expert_used_count": 2, "expert_feed_forward_length": 96}
    return tiny("qwen3moe", layer, n_layer=3, dims={"d": 32, "E": N_EXPERT}, **sizes).write(tmp_path / "model.gguf")


def load(path: Path, **more: Any) -> pumice.Model:
    return pumice.load(path, config={"backends": ["gpu", "numpy"]}, plugins=[gpu_plugin(DenseGpu)], **OPTIONS | more)


@pytest.mark.parametrize("more", [{}, {"n_cpu_moe": 2}, {"moe_cache_mib": 100}])
def test_same_logits_by_copies(path: Path, more: dict[str, Any]) -> None:
    with load(path, op_offload="off", **more) as model:
        expected = model.logits(PROMPT), model.generate(PROMPT, max_tokens=16, temperature=0).tokens
    copied: list[int] = []
    copy = StreamedMixture.copy

    def counted(mixture: StreamedMixture, experts: Any) -> None:
        copied.append(len(experts))
        copy(mixture, experts)

    with patch.object(StreamedMixture, "copy", counted), load(path, op_offload="on", **more) as model:
        np.testing.assert_allclose(model.logits(PROMPT), expected[0], atol=1e-5)
        n_layers = 2 if more.get("n_cpu_moe") == 2 else 3
        assert len(copied) == 2 * n_layers, "the last four tokens need no copies"
        assert N_EXPERT in copied, "some layers are copied ahead, as a whole"
        assert model.generate(PROMPT, max_tokens=16, temperature=0).tokens == expected[1]
        (gpu,) = (device for device in model.facts.devices if device.is_gpu)
        assert not gpu.parts.get("experts") or n_layers == 2


@pytest.mark.parametrize(
    ("options", "n_blocks", "n_shared"),
    [
        ({"n_cpu_ffn": -1}, 4, 6),
        ({"n_cpu_ffn": 2}, 2, 6),
        ({"n_gpu_layers": 2}, 9, 7),  # the products of q, k and v, the output's, and the feed-forward network's
        ({"n_gpu_layers": 2, "n_cpu_ffn": -1, "kv_offload": False}, 10, 10),
        ({"override_tensors": ["attn_q=CPU"]}, 4, 2),
    ],
)
def test_dense_matrices_are_copied(tmp_path: Path, options: dict[str, Any], n_blocks: int, n_shared: int) -> None:
    path = tiny("llama", LLAMA, n_layer=4, dims={"d": 32}).write(tmp_path / "dense.gguf")
    options = {"n_cpu_moe": 0, **options}
    with load(path, op_offload="off", **options) as model:
        expected = model.logits(PROMPT), model.generate(PROMPT, max_tokens=16, temperature=0).tokens
    copying = patch.object(StreamedMixture, "copy", autospec=True, side_effect=StreamedMixture.copy)
    with copying as copy, load(path, op_offload="on", **options) as model:
        for _ in range(2):
            copy.reset_mock()
            np.testing.assert_allclose(model.logits(PROMPT), expected[0], atol=1e-5)
            assert copy.call_count == 2 * n_blocks, "the last four tokens need no copies"
        assert model.generate(PROMPT, max_tokens=16, temperature=0).tokens == expected[1]
        if options.get("n_gpu_layers") == 2:
            assert [segment.backend for segment in model.runner._main.placed][:2] == ["numpy", "gpu"]
            assert len(model.runner._main.placed) == (2 if "kv_offload" not in options else 6)
        segments = [segment for segment in model.runner._streaming.segments if segment.backend == "gpu"]
        shared = [weight for segment in segments for weight in segment.weights if weight.name.startswith(PREFIX)]
        assert len({weight.name for weight in shared}) == n_shared
        stream = model.runner._stream
        assert stream is not None
        assert len(shared) == sum(len(mixture.copies) for mixture in stream.mixtures)


def test_rates_decide(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[str, Rates] = {}
    monkeypatch.setattr("pumice.engine.placement.experts.known_rates", lambda name, *_: rates.get(name))

    def streams() -> int:
        with load(path) as model:
            stream = model.runner._stream
            return stream.least if stream else 0

    assert streams() == 0, "nothing was measured"
    slow = Rates(memory=1e6, compute=1e8, link=1e12, node_seconds=0.0, run_seconds=0.0)
    rates |= {"numpy": slow, "gpu": Rates(1e12, 1e14, 1e12, 0.0, 0.0, upload=1e9)}
    assert streams() == 32
    rates |= {"gpu": Rates(1e12, 1e14, 1e12, 0.0, 0.0, upload=1e3)}
    assert streams() == 0, "copying takes longer than computing"


class ReadingGpu(DenseGpu):
    """A GPU that reads weights in host memory, too."""

    reads_in_place = True

    def supports(self, node: Node, limits: Limits) -> bool:
        return node.op not in OF_HOST

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        return 0 if limits.is_in_place(held.name) else super().footprint(held, limits)

    def host_footprint(self, weight: Weight, limits: Limits) -> int:
        return weight.nbytes if limits.is_in_place(weight.name) else 0


def test_copies_that_are_not_wanted_do_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor reads prompts slowly, copies would make them fast, and the GPU reads host memory less fast."""
    rates = {
        "numpy": Rates(memory=1e12, compute=1e8, link=1e12, node_seconds=0.0, run_seconds=0.0),
        "gpu": Rates(1e12, 1e14, 1e12, 0.0, 0.0, upload=1e12, read=1.6e8),
    }
    monkeypatch.setattr("pumice.engine.placement.experts.known_rates", lambda name, *_: rates.get(name))

    def is_read_in_place(op_offload: str) -> bool:
        config = {"backends": ["gpu", "numpy"]}
        with pumice.load(
            path, config=config, plugins=[gpu_plugin(ReadingGpu)], op_offload=op_offload, **OPTIONS
        ) as model:
            return list(model.runner.backends_used) == ["gpu"]

    assert not is_read_in_place("auto")
    assert is_read_in_place("off")


def test_a_plan_follows_the_rates_that_it_measured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Rates] = {}

    def measured(*_: Any) -> dict[Any, Rates]:
        slow = Rates(memory=1e6, compute=1e8, link=1e12, node_seconds=0.0, run_seconds=0.0)
        known.update(numpy=slow, gpu=Rates(1e12, 1e14, 1e12, 0.0, 0.0, upload=1e9))
        return {}

    monkeypatch.setattr("pumice.engine.placement.experts.known_rates", lambda name, *_: known.get(name))
    monkeypatch.setattr("pumice.planning.plan.measure_devices", measured)
    config = load_config({"backends": ["gpu", "numpy"], **OPTIONS})
    with GGUFFile.open(path) as file:
        plan = plan_file(file, config, get_registry(config, [gpu_plugin(DenseGpu)]))
    assert any(held.part == "expert_stream" for held in plan.held)


def test_a_plan_counts_the_shared_matrices(path: Path) -> None:
    def experts(op_offload: str) -> int:
        plan = pumice.plan(path, memory="1GiB", ram="1GiB", measure=False, op_offload=op_offload, **OPTIONS)
        return sum(held.n_bytes for held in plan.held if held.device.backend == "gpu" and held.part == "expert_stream")

    assert experts("off") == 0
    assert experts("on") == 2 * 3 * N_EXPERT * 64 * 96 * 4
    assert PREFIX == "expert_stream."


def test_layers_off_the_gpu_are_refused_in_one_line(path: Path) -> None:
    with load(path, op_offload="on") as model:
        stream = model.runner._stream
        assert stream is not None
        with pytest.raises(pumice.BackendError, match=r"layer 0 is not on a GPU.*--no-op-offload"):
            stream.attach([], [])
