"""The bundled samplers against llama.cpp's own: see tests/make_fixtures/README.md."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pumice.sampler import Candidates, Chain, Plan, SamplerContext, Selector
from pumice.sampler.parameters import create, names
from pumice_samplers import SAMPLERS

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "llama_samplers.json").read_text())
LOGITS = {
    name: np.array([-math.inf if x is None else x for x in values], np.float32)
    for name, values in FIXTURE["logits"].items()
}


def build(name: str, params: dict[str, Any], context: SamplerContext, history: list[int]) -> Any:
    params = {"temperature": 1.0, "repeat_last_n": 64} | params
    if "logit_bias" in params:
        bias = {int(t): -math.inf if b is None else b for t, b in params["logit_bias"].items()}
        params = params | {"logit_bias": bias}
    base, _, version = name.partition("_")
    if base == "mirostat":
        name, params = base, params | {"mirostat": int(version)}
    sampler = create(SAMPLERS[name], {k: v for k, v in params.items() if k in names(SAMPLERS[name])})
    sampler.start(context)
    for token in history:
        sampler.accept(token)
    return sampler


def check(candidates: Candidates, case: dict[str, Any]) -> None:
    probabilities = candidates.probabilities()
    order = np.argsort(candidates.ids)
    order = order[probabilities[order] > 0]
    assert candidates.ids[order].tolist() == case["ids"]
    np.testing.assert_allclose(probabilities[order], case["probabilities"], rtol=1e-4, atol=1e-7)


def label(case: dict[str, Any]) -> str:
    return f"{case['logits']}-{'+'.join(case['samplers'])}-{case['params']}"


@pytest.mark.parametrize("case", FIXTURE["cases"], ids=label)
def test_same_candidates_and_probabilities(case: dict[str, Any]) -> None:
    logits = LOGITS[case["logits"]].copy()
    context = SamplerContext(len(logits), seed=1)
    candidates = Candidates(logits)
    for name in case["samplers"]:
        sampler = build(name, case["params"], context, case["history"])
        if isinstance(sampler, Selector) or not Plan.of(sampler).neutral:
            sampler.apply(candidates)
    check(candidates, case)


@pytest.mark.parametrize("case", FIXTURE["spoken"], ids=lambda case: str(case["params"]["dry_sequence_breakers"]))
def test_dry_breakers_of_a_real_vocabulary(case: dict[str, Any], shared: Path) -> None:
    with_tokenizer = pytest.importorskip("pumice.tokenizers")
    from pumice.gguf import GGUFFile

    with GGUFFile.open(shared / "vocabs" / "ggml-vocab-llama-spm.gguf") as file:
        tokenizer = with_tokenizer.from_metadata(file.metadata)
    ids = np.array(case["candidates"], np.int32)
    candidates = Candidates(np.zeros(len(ids), np.float32), ids)
    context = SamplerContext(tokenizer.n_vocab, seed=1, tokenizer=tokenizer)
    build("dry", case["params"], context, case["history"]).apply(candidates)
    check(candidates, case)


def drawn_label(case: dict[str, Any]) -> str:
    return f"{case['logits']}-{'+'.join(case['samplers'])}-{case['params']['adaptive_target']}"


@pytest.mark.parametrize("case", FIXTURE["drawn"], ids=drawn_label)
def test_adaptive_p_draws_the_same_tokens(case: dict[str, Any]) -> None:
    """The target moves with what was drawn, so that an error in the mean of earlier tokens would show."""
    logits = LOGITS[case["logits"]]
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    context = SamplerContext(len(logits), seed=1)
    chain = Chain.build(SAMPLERS, list(SAMPLERS), {**off, "rng": "mt19937", **case["params"]}, context)
    tokens = []
    for _ in case["tokens"]:
        token = chain.sample(logits)
        assert token is not None
        chain.accept(token)
        tokens.append(token)
    assert tokens == case["tokens"]
