"""Tokens that the MLX backend picks on the device: its candidates, what it picks of them, and whole generations."""

import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

import pumice
from picking_tests import PickingTests
from pumice.backend.step import Step
from pumice_mlx import pick_kernel
from pumice_mlx.backend import MlxBackend


@pytest.fixture(params=[False, True], ids=["operations", "kernel"])
def selects(request: pytest.FixtureRequest, cuda_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Select tokens by MLX's operations, and by the CUDA kernel, emulated."""
    caches = (pick_kernel._kernel, pick_kernel.works)
    if request.param and sys.platform != "linux":
        pytest.skip("threads take turns by ucontext.h")
    for cache in caches:
        cache.cache_clear()
    if request.param:
        monkeypatch.setattr(mx.fast, "cuda_kernel", cuda_kernel, raising=False)
        monkeypatch.setattr(pick_kernel, "is_available", lambda: True)
    assert pick_kernel.works() == request.param
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("selects")
class TestPicking(PickingTests):
    options: ClassVar[dict[str, Any]] = {"backend": "mlx", "config": {"mlx": {"activations": "float32"}}}

    @pytest.fixture
    def backend(self) -> MlxBackend:
        return MlxBackend()


@pytest.mark.parametrize("name", ["gemma3", "mamba", "deepseek2-v3"])
def test_generations_are_those_of_the_host(tiny_file: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One sequence and several, sampled and greedy; most steps are taken ahead, with guesses that are right."""
    from pumice_mlx.program import MlxProgram

    behind: list[bool] = []
    submit = MlxProgram.submit

    def counted(self: MlxProgram, step: Step) -> Any:
        if step.ask:
            behind.append(step.batch.takes_from_slots)
        return submit(self, step)

    monkeypatch.setattr(MlxProgram, "submit", counted)
    prompts, texts = [[1, 2, 3], [4, 5], [9] * 20], []
    for backend in ("numpy", "mlx"):
        options = {"backend": backend, "kv_type": "f32", "n_ctx": 512, "n_parallel": 3}
        config = {"mlx": {"activations": "float32"}} if backend == "mlx" else {}
        with pumice.load(tiny_file(name), config=config, **options) as model:
            sampled = model.generate(prompts[0], max_tokens=60, temperature=0.8, seed=3).tokens
            greedy = [each.tokens for each in model.generate_many(prompts, max_tokens=40, temperature=0)]
            texts.append([sampled, *greedy])
    assert texts[0] == texts[1]
    assert any(behind), "steps are submitted before the tokens of earlier ones are read"
