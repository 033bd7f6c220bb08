"""From the highest logits alone a chain chooses what it chooses from all of them."""

import numpy as np
import pytest

from pumice.errors import BackendError
from pumice.sampler import Chain, SamplerContext
from pumice_samplers import SAMPLERS

N_VOCAB = 400


def chain(params: dict, seed: int = 3, order: list[str] | None = None) -> Chain:
    return Chain.build(SAMPLERS, order or list(SAMPLERS), params, SamplerContext(n_vocab=N_VOCAB, seed=seed))


def best(logits: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-logits, kind="stable")[:k].astype(np.int32)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("case", range(40))
def test_the_same_tokens(case: int, ties: bool) -> None:
    rng = np.random.default_rng(case)
    choices = {"top_k": [1, 2, 40, 200], "typical_p": [1.0, 0.6], "top_p": [1.0, 0.9, 0.3], "min_p": [0.0, 0.05, 0.5]}
    choices |= {"xtc_probability": [0.0, 0.5], "temperature": [0.0, 0.7, 1.0, 2.5]}
    choices |= {"dynatemp_range": [0.0, 0.3], "mirostat": [0, 0, 2]}
    params = {name: rng.choice(values).item() for name, values in choices.items()}
    whole, few = chain(params), chain(params)
    if whole.n_best is None:  # mirostat leaves out the others
        return
    for _ in range(10):
        logits = (3 * rng.standard_normal(N_VOCAB)).astype(np.float32)
        logits = np.round(logits) if ties else logits
        ids = best(logits, int(rng.integers(whole.n_best, N_VOCAB + 1)))
        token = whole.sample(logits)
        assert few.sample(logits[ids], ids) == token
        whole.accept(token)
        few.accept(token)


@pytest.mark.parametrize("case", range(40))
def test_after_lowering_the_same_token_or_none(case: int) -> None:
    rng = np.random.default_rng(case)
    choices = {"repeat_penalty": [1.0, 1.3], "frequency_penalty": [0.0, 2.0], "dry_multiplier": [0.0, 2.0]}
    choices |= {"top_k": [1, 20], "temperature": [0.0, 1.5]}
    params = {name: rng.choice(values).item() for name, values in choices.items()}
    params["logit_bias"] = {int(token): -float(rng.integers(1, 9)) for token in rng.integers(0, N_VOCAB, 100)}
    whole, few = chain(params), chain(params)
    decided = 0
    for _ in range(40):
        logits = np.round(3 * rng.standard_normal(N_VOCAB)).astype(np.float32)
        ids = best(logits, 64)
        token, found = whole.sample(logits), few.sample(logits[ids], ids)
        decided += found is not None
        found = few.sample(logits) if found is None else found
        assert found == token
        for made in (whole, few):
            made.accept(found)
    assert decided > (30 if params["top_k"] == 1 else 0)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "contain NaN"), (np.inf, "infinity"), (-np.inf, "all -inf")])
def test_bad_logits_are_seen(value: float, message: str) -> None:
    logits = np.full(5, -np.inf, np.float32)
    logits[0] = value
    with pytest.raises(BackendError, match=message):
        chain({"top_k": 5}).sample(logits, np.arange(5, dtype=np.int32))
