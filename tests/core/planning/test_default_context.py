"""The default context: what the model was trained for, for each sequence, as far as memory has room."""

from pathlib import Path
from typing import Any

import pytest

import pumice
from pumice.engine.placement.fitting import CACHE_MARGIN
from pumice.planning import ModelPlan
from pumice.planning.machine import RESERVE
from tiny_models import N_CTX
from tiny_zoo import ZOO

LEAST = 32  # tokens below which no context is lowered


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ZOO["qwen3"].write(tmp_path_factory.mktemp("model") / "model.gguf")


def planned(path: Path, memory: str | int = 0, ram: str | int = "1GiB", **options: Any) -> ModelPlan:
    return pumice.plan(path, memory=memory, ram=ram, **{"n_batch": 8, "fit_ctx": LEAST, **options})


def bytes_on(plan: ModelPlan, is_gpu: bool) -> int:
    return sum(device.bytes for device in plan.devices if device.is_gpu == is_gpu)


@pytest.mark.parametrize("memory", [0, "1GiB"])
@pytest.mark.parametrize("n_parallel", [1, 3, 4])
def test_each_sequence_has_the_context_of_training(path: Path, memory: str | int, n_parallel: int) -> None:
    plan = planned(path, memory, n_parallel=n_parallel)
    assert (plan.n_ctx, plan.n_cache) == (N_CTX, n_parallel * N_CTX)
    given = planned(path, memory, n_parallel=n_parallel, n_ctx=64)
    assert (given.n_ctx, given.n_cache) == (64, 64)


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_cache_takes_its_share_of_free_memory(path: Path, on_gpu: bool, share: float) -> None:
    """More memory never gives less, less gives at least the least, and the rest is left to others."""
    least = bytes_on(planned(path, "1GiB" if on_gpu else 0, n_ctx=LEAST), on_gpu)
    whole = bytes_on(planned(path, "1GiB" if on_gpu else 0), on_gpu)
    part = share if on_gpu else share / 2
    sizes = []
    for step in range(0, 20, 2):  # tenths of what the whole cache needs
        free = least + int((whole - least) / part * step / 10)
        where: dict[str, Any] = {"memory": RESERVE + CACHE_MARGIN + free} if on_gpu else {"ram": free}
        plan = planned(path, **where, cache_share=share)
        rows = plan.n_ctx - LEAST
        assert bytes_on(plan, on_gpu) <= least + (free - least) * part or not rows
        assert LEAST <= plan.n_ctx <= plan.n_cache <= 4 * N_CTX
        assert plan.n_cache in (plan.n_ctx, *(N_CTX * n // 4 for n in range(4, 17)))
        sizes.append((plan.n_ctx, plan.n_cache))
    assert sizes == sorted(sizes)
    assert sizes[0] == (LEAST, LEAST)
    assert sizes[-1] == (N_CTX, 4 * N_CTX)
    assert len(set(sizes)) > 4


def test_a_loaded_model_says_what_came_out(path: Path) -> None:
    with pumice.load(path, backend="numpy") as model:
        assert (model.n_ctx, model.facts.n_ctx_train, model.facts.n_cache) == (N_CTX, N_CTX, 4 * N_CTX)
        assert model.engine.snapshot().n_blocks[0] == 4 * N_CTX // 32
