"""DRY against a naive search for repetitions, and its sequence breakers with a vocabulary of a few words."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.errors import RequestError
from pumice.sampler import Candidates, Chain, SamplerContext
from pumice_samplers.breakers import Breakers, Breaks
from pumice_samplers.dry import Dry
from pumice_samplers.select import Greedy
from waiting import seconds_of


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


def test_a_step_of_a_long_repetition_is_quick() -> None:
    """Whatever base, window and breakers a request chooses: only its first token costs a walk through all."""
    n = 20_000
    words = Words("a", "aa", "aaa", "b", "c")
    breakers = ["a" * i + "b" for i in range(1, 40)]
    sampler = Dry(1.0, 1.0001, 2, n, breakers)
    sampler.start(SamplerContext(5, seed=1, tokenizer=words))
    assert seconds_of(lambda: [sampler.accept(0) for _ in range(n)], 1.0) < 1.0
    sampler.biases()

    def steps() -> None:
        for _ in range(20):
            sampler.accept(0)
            sampler.biases()

    assert seconds_of(steps, 0.2) < 0.2


def test_long_repetitions_stay_finite() -> None:
    result = penalties([0] * 3000, 2, dry_base=4.0, dry_penalty_last_n=3000)
    assert 1e37 < result[0] < float("inf")


@pytest.mark.parametrize(
    ("breakers", "penalty"), [([], 1.75), (["b"], 0), (["a"], 1), ([" "], 1.75), (["ab"], 0), ([""], 1.75)]
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
    assert Breakers(["."], words).after(words.n_vocab) is None  # a row of the matrix that no token has


def distance(tokens: list[int], window: int, breakers: Breakers) -> int:
    breaks = Breaks(breakers)
    for token in tokens:
        breaks.append(token)
    return breaks.distance(window)


def naive_distance(tokens: list[int], texts: list[str], words: Words) -> int:
    """As llama.cpp has it: the last token in which a breaker begins, then the longest end of one."""
    for begin in reversed(range(len(tokens))):
        word, after = words.words[tokens[begin]], tokens[begin + 1 :]
        found = [0 for text in texts if text in word]
        for text in (text for text in texts if text not in word):
            for n in (n for n in range(1, min(len(text), len(word) + 1)) if word.endswith(text[:n])):
                tail = words.tokenize(text[n:], False, False)
                found += [len(tail)] if after[: len(tail)] == tail else []
        if found:
            return len(after) - max(found)
    return len(tokens)


@given(
    st.lists(st.integers(0, 4), max_size=30),
    st.lists(st.text("ab.", min_size=1, max_size=4), max_size=4),
    st.integers(1, 30),
)
def test_breaks_are_those_of_a_naive_search(tokens: list[int], texts: list[str], window: int) -> None:
    words = Words("a", "b", ".", "ab", "b.")
    expected = naive_distance(tokens[-window:], texts, words)
    assert distance(tokens, window, Breakers(texts, words)) == expected


def test_breakers_are_few_and_short() -> None:
    samplers = {"dry": Dry, "greedy": Greedy}
    for breakers in (["a"] * 65, ["a" * 41]):
        with pytest.raises(RequestError, match="dry_sequence_breakers"):
            Chain.build(samplers, ["dry", "greedy"], {"dry_sequence_breakers": breakers}, SamplerContext(5, seed=1))


def test_biases_behind_tokens_are_those_after_them() -> None:
    """Whatever the window and the breakers; the sampler goes on as if nobody had asked."""
    random = np.random.default_rng(2)
    for n in (3, 9, 64):
        sampler, other = (Dry(1.0, 1.75, 1, n, ["d"]) for _ in range(2))
        for one in (sampler, other):
            one.start(SamplerContext(4, seed=1, tokenizer=Words("a", "b", "c", "d")))
        for token in random.choice(4, size=60, p=[0.4, 0.3, 0.2, 0.1]).tolist():
            coming = random.integers(3, size=5).tolist()
            behind, further = sampler.biases_behind(coming), deepcopy(other)
            for found, following in zip(behind, coming, strict=True):
                further.accept(following)
                assert list(found) == list(further.biases())
            sampler.accept(token)
            other.accept(token)
            assert list(sampler.biases()) == list(other.biases())
