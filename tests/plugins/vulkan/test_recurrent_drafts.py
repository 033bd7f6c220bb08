"""The device verifies drafts of models with recurrent states, which read the right tokens once these are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pumice
from drafting import verify_on_device
from equal_texts import GRAMMARS, write_model
from pumice.engine.loop.flight import Flight
from pumice.engine.loop.flights import Flights

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

CONFIG = {"vulkan": {"batch_invariant": True}, "n_draft": 7}
SIZES: dict[str, Any] = {"n_ctx": 288, "n_batch": 16, "n_parallel": 3}
SAMPLED = {"temperature": 0.7, "top_k": 5, "repeat_penalty": 1.1}


def changed(text: str) -> str:
    """Return a text whose drafts have right tokens before wrong ones, and are found again behind them."""
    return text[:5] + "f" + text[6:14] + "a" + text[15:]


def numpys(path: Path, prompts: Sequence[str], each: Sequence[dict[str, Any]]) -> list[Sequence[int]]:
    """Return the tokens that NumPy chooses without drafts."""
    with pumice.load(path, backend="numpy", config={"speculate": "off"}, **SIZES) as model:
        return [done.tokens for done in model.generate_many(prompts, each=each)]


@pytest.mark.parametrize("name", ["lfm2", "mamba2"])
def test_texts_are_those_without_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of several sequences at once: greedy, sampled, with a stop string, a grammar or a context that is shifted."""
    verify, on_device = Flights._verified, []
    monkeypatch.setattr(Flights, "_verified", lambda *args: on_device.append(len(args[1])) or verify(*args))
    path, prompts = write_model(name, tmp_path), ["abcabcabc", "fe fe fe", "ab ab", "abab", "abcabc"]
    each: list[dict[str, Any]] = [
        {"temperature": 0, "max_tokens": 30},
        {"seed": 3, "max_tokens": 30, **SAMPLED},
        {"seed": 4, "max_tokens": 30, "stop": ["b"], **SAMPLED},
        {"seed": 5, "max_tokens": 30, **GRAMMARS[1], **SAMPLED},
        {"temperature": 0, "max_tokens": 30, "n_ctx": 24, "context_shift": True},
    ]
    with pumice.load(path, backend="vulkan", config=CONFIG, **SIZES) as model:
        plain = model.generate_many(prompts, each=each, speculate="off")
        predicted = [{**one, "prediction": changed(done.text)} for one, done in zip(each, plain, strict=True)]
        drafted = [model.generate_many(prompts, each=wanted, speculate="ngram") for wanted in (each, predicted)]
    for texts in drafted:
        assert [done.tokens for done in texts] == [done.tokens for done in plain]
    assert on_device  # of how many sequences at once depends on the clock
    timings = [done.timings for done in drafted[1]]
    assert sum(each.n_drafted for each in timings) > sum(each.n_accepted for each in timings) > 8
    assert [done.tokens for done in plain] == numpys(path, prompts, each)


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
