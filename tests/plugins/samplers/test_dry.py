"""DRY against a naive search for repetitions, and its sequence breakers with a vocabulary of a few words."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.sampler import Candidates, SamplerContext
from pumice_samplers.breakers import Breakers
from pumice_samplers.dry import Dry, match_lengths


class Words:
    """A tokenizer whose tokens are these strings; text is cut into the longest known ones."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.n_vocab = len(words)

    def detokenize(self, ids: list[int], *, special: bool = False) -> str:
        return "".join(self.words[i] for i in ids)

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        assert not add_special
        assert not parse_special
        ids = []
        while text:
            word = max((w for w in self.words if text.startswith(w)), key=len)
            ids.append(self.words.index(word))
            text = text[len(word) :]
        return ids


def penalties(history: list[int], n_vocab: int, tokenizer: Any = None, **params: Any) -> list[float]:
    sampler = Dry(dry_multiplier=1.0, **params)
    sampler.start(SamplerContext(n_vocab, seed=1, tokenizer=tokenizer))
    for token in history:
        sampler.accept(token)
    candidates = Candidates(np.zeros(n_vocab, np.float32))
    sampler.apply(candidates)
    return (-candidates.logits).tolist()


def naive(history: list[int], n_vocab: int, base: float, allowed: int) -> list[float]:
    """For each token: the longest end of the history that was followed by it before."""
    result = [0.0] * n_vocab
    for i in range(1, len(history)):
        n = 0
        while n < i and history[i - 1 - n] == history[-1 - n]:
            n += 1
        if n >= allowed and len(history) > allowed:
            result[history[i]] = max(result[history[i]], base ** (n - allowed))
    return result


@given(st.lists(st.integers(0, 3), max_size=40), st.sampled_from([1.0, 1.75]), st.integers(0, 4))
def test_penalties_are_those_of_a_naive_search(history: list[int], base: float, allowed: int) -> None:
    result = penalties(history, 4, dry_base=base, dry_allowed_length=allowed)
    np.testing.assert_allclose(result, naive(history, 4, base, allowed), rtol=1e-5)


def test_match_lengths() -> None:
    tokens = np.array([1, 2, 3, 3, 2, 3, 9, 1, 2, 3], np.int32)
    assert match_lengths(tokens, 10).tolist() == [0, 0, 3, 1, 0, 2, 0, 0, 0]
    assert match_lengths(tokens, 2).tolist() == [0, 0, 2, 1, 0, 2, 0, 0, 0]


def test_long_repetitions_stay_finite() -> None:
    result = penalties([0] * 3000, 2, dry_base=4.0, dry_penalty_last_n=3000)
    assert 1e37 < result[0] < float("inf")


def test_only_the_last_tokens_count() -> None:
    assert penalties([0, 1, 2, 3, 0, 1], 4, dry_penalty_last_n=6)[2] == 1
    assert penalties([0, 1, 2, 3, 0, 1], 4, dry_penalty_last_n=5)[2] == 0


@pytest.mark.parametrize(
    ("breakers", "penalty"),
    [([], 1.75), (["b"], 0), (["a"], 1), ([" "], 1.75), (["ab"], 0), ([""], 1.75)],
)
def test_a_match_does_not_reach_past_a_breaker(breakers: list[str], penalty: float) -> None:
    words = Words("a", "b", "c", "d", " ")
    history = words.tokenize("dabcdab", False, False)  # "dab" again: c would make it four
    params = {"dry_allowed_length": 1 if breakers == ["a"] else 2, "dry_sequence_breakers": breakers}
    assert penalties(history, 5, words, **params)[2] == pytest.approx(penalty)


def test_a_token_with_a_breaker_is_not_penalised() -> None:
    words = Words("a", "b", ".c", ".")
    assert penalties([0, 1, 2, 0, 1], 4, words, dry_sequence_breakers=[])[2] == 1
    assert penalties([0, 1, 2, 0, 1], 4, words, dry_sequence_breakers=["."])[2] == 0


def test_breakers_across_tokens() -> None:
    words = Words("x\n", "\n", "\ny", "y", "z")
    breakers = Breakers.of(["\n\n"], words, 5)
    assert breakers.tails == {0: [(1,)], 1: [(1,)]}
    assert not breakers.single.any()
    assert breakers.distance(np.array([4, 0, 1, 3, 4])) == 2
    assert breakers.distance(np.array([4, 0, 3, 1, 4])) == 5
