"""The device verifies drafts of models with recurrent states, which read the right tokens once these are known."""

from pathlib import Path
from typing import Any

import pytest

import pumice
from drafting import verify_on_device
from equal_texts import write_model
from pumice.engine.loop.flight import Flight

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

CONFIG = {"vulkan": {"batch_invariant": True}, "n_draft": 7}
SIZES: dict[str, Any] = {"n_ctx": 288, "n_batch": 16, "n_parallel": 3}
SAMPLED = {"temperature": 0.7, "top_k": 5, "repeat_penalty": 1.1}


def test_rounds_of_a_layer_that_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hybrid model: the graph with the layer's inputs leaves states to be settled, too."""
    take, rounds = Flight.take, []

    def noted(flight: Flight, following: Flight | None) -> None:
        rounds.append(flight.round is not None and following is not None)
        take(flight, following)

    monkeypatch.setattr(Flight, "take", noted)
    verify_on_device(monkeypatch)
    config, prompts = {**CONFIG, "n_draft": 3, "speculate": "mtp", "draft_p_min": 0.0}, ["abcabc", "fe fe fe"]
    options: dict[str, Any] = {"max_tokens": 24, "seed": 3, **SAMPLED}
    with pumice.load(write_model("qwen35", tmp_path), backend="vulkan", config=config, **SIZES) as model:
        plain = model.generate_many(prompts, speculate="off", **options)
        drafted = model.generate_many(prompts, speculate="mtp", cache_salt="drafts", **options)
    assert [done.tokens for done in drafted] == [done.tokens for done in plain]
    assert sum(rounds) > 10
    assert sum(done.timings.n_accepted for done in drafted) > 0
