"""Programs of a model that the CPU runs between those of a GPU share activations, and keep their results apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from gpu_plugins import Gpu, gpu_plugin
from pumice_cpu.backend import CpuProgram
from tiny_models import ATTENTION, EXPERTS, tiny

N_LAYER = 5
PROMPT = [5 + i * i % 23 for i in range(60)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    layer = f"{ATTENTION} attn_q_norm attn_k_norm {EXPERTS}"
    sizes = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 96}
    return tiny("qwen3moe", layer, n_layer=N_LAYER, dims={"d": 32, "E": 8}, **sizes).write(tmp_path / "model.gguf")


def test_experts_of_layers_share_activations(path: Path) -> None:
    options: dict[str, Any] = {"n_ctx": 128, "n_batch": 32, "n_parallel": 2}
    with pumice.load(path, backend="numpy", **options) as model:
        expected = model.logits(PROMPT), model.generate(PROMPT, max_tokens=24, temperature=0).tokens
    by_gpu = {"config": {"backends": ["gpu", "cpu"]}, "plugins": [gpu_plugin(Gpu)], "n_cpu_moe": -1, **options}
    with pumice.load(path, **by_gpu) as model:
        np.testing.assert_allclose(model.logits(PROMPT), expected[0], atol=1e-3)
        assert model.generate(PROMPT, max_tokens=24, temperature=0).tokens == expected[1]
        pipeline: Any = model.runner._main.program
        programs = [program for program in pipeline._programs if isinstance(program, CpuProgram)]
        assert len(programs) == N_LAYER
        assert len({id(program._arena) for program in programs}) == 1
        kept = [array for program in programs for array in program._kept.values()]
        assert not any(np.shares_memory(a, b) for a in kept for b in kept if a is not b)
        (host,) = (device for device in model.facts.devices if not device.is_gpu)
        taken = sum(program.memory["activations"] for program in programs)
        assert taken == host.parts["activations"] == programs[0]._arena.size + sum(array.nbytes for array in kept)
        assert taken < N_LAYER * programs[0]._arena.size
