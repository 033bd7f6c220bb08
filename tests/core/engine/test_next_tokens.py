"""States that a drafting layer keeps of a sequence: hidden states that it has not read, and none after its error."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pumice.backend.step import Batch, Limits
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import DraftLimits
from pumice.engine.drafts.next_tokens import NextTokens
from pumice.engine.drafts.speculation import Speculation

N_VOCAB, N_EMBD = 50, 4
LIMITS = Limits(512, 64, 64, 4, 32, {0: 16}, "f32")


class Layer:
    """A runner whose layer counts its steps, or fails."""

    limits = LIMITS
    model = SimpleNamespace(results=lambda graph: {}, listening=None)

    def __init__(self, fails: bool = False, compiles: bool = True) -> None:
        self.fails, self.compiles, self.n_steps = fails, compiles, 0
        self.batches: list[Batch] = []

    def steps_of(self, graph: str) -> int:
        return 0

    def is_compiled(self, graph: str) -> bool:
        return self.compiles

    def outputs(self, batch: Batch, graph: str) -> dict[str, Any]:
        self.n_steps += 1
        self.batches.append(batch)
        if self.fails:
            raise RuntimeError("no memory")
        n = len(batch.output_ids)
        return {"logits": np.zeros((n, N_VOCAB), np.float32), "hidden": np.ones((n, N_EMBD), np.float32)}


class Sequence(SimpleNamespace):
    """The part of a sequence that the layer reads."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def drafting_layer(layer: Layer) -> NextTokens:
    next_tokens = NextTokens(layer, DraftLimits(8, 0, 0.0, 512))  # type: ignore[arg-type]
    next_tokens.cache = KVCache(LIMITS)
    return next_tokens


def sequence(next_tokens: NextTokens, n_tokens: int, n_cached: int = 512) -> Any:
    assert next_tokens.cache is not None
    tables, _ = next_tokens.cache.begin([])
    request, timings = SimpleNamespace(speculate="mtp"), SimpleNamespace(prompt_cached=n_cached)
    facts = {"tokens": list(range(n_tokens)), "finish_reason": None, "prediction": None, "media": None}
    facts |= {"chain": SimpleNamespace(n_vocab=N_VOCAB), "salt": b"", "spoken": [0], "generated": []}
    facts |= {"tables": tables, "slot": 0, "adapters": (), "memory": None, "n_past": 0, "pending": 1}
    return Sequence(request=request, timings=timings, **facts)


def step(running: Any, first: int, n: int) -> Any:
    """A batch of positions from ``first`` on; the hidden state of each has its number."""
    tokens = np.asarray(running.tokens[first : first + n], np.int32)
    batch = SimpleNamespace(seq_starts=np.array([0, n]), positions=np.arange(first, first + n), tokens=tokens)
    return batch, np.repeat(np.arange(first, first + n, dtype=np.float32)[:, None], N_EMBD, 1)


@pytest.mark.parametrize("parts", [[(20, 4)], [(20, 1), (21, 3)]], ids=["one step", "two steps"])
def test_states_computed_again_are_those_kept_before(parts):
    """A recurrent model goes back behind a wrong draft, to positions before those that wait."""
    next_tokens = drafting_layer(Layer())
    running = sequence(next_tokens, 24)
    for first, n in [(0, 20), (20, 3)]:
        batch, stream = step(running, first, n)
        next_tokens.landed(batch, 0, running, stream)
    assert len(next_tokens.propose([running], [2])[0]) == 2
    running.tokens.append(24)
    for first, n in parts:
        batch, stream = step(running, first, n)
        next_tokens.landed(batch, 0, running, stream)
    kept = next_tokens._hidden[running]
    assert (kept.first, kept.rows[:, 0].tolist()) == (22, [22, 23])


@pytest.mark.parametrize("compiles", [True, False])
def test_a_layer_that_fails_is_dropped(caplog, compiles):
    """For the sequence; for all, where it cannot be compiled."""
    layer = Layer(fails=True, compiles=compiles)
    next_tokens = drafting_layer(layer)
    speculation = Speculation({}, n_draft=4, layer=next_tokens)
    both = sequence(next_tokens, 300), sequence(next_tokens, 300)
    with caplog.at_level(logging.WARNING):
        for running in both:
            for first in range(200):
                batch, stream = step(running, first, 1)
                speculation.landed(batch, [(running, 1)], stream)
    n_failed = 2 if compiles else 1
    assert layer.n_steps == len(caplog.records) == n_failed
    assert not len(next_tokens._hidden)
    assert next_tokens.propose([both[0]], [3])[0] == []


def test_an_error_of_a_draft_model_leaves_the_layer(caplog):
    """A model with a layer of its own may have a draft model, too: the one that failed is dropped."""
    layer, model = drafting_layer(Layer()), SimpleNamespace(name="draft", drop=lambda running: None)
    speculation = Speculation({}, layer=layer, model=model)  # type: ignore[arg-type]
    running = sequence(layer, 24)
    speculation.drop(model, [running], "submit", RuntimeError("no memory"))  # type: ignore[arg-type]
    assert "proposer 'draft': submit: " in caplog.text
    batch, stream = step(running, 0, 23)
    layer.landed(batch, 0, running, stream)
    assert layer.knows(running)
    speculation.drop(layer, [running], "submit", RuntimeError("no memory"))
    assert "proposer 'mtp': submit: " in caplog.text
    assert layer.knows(running) is False
