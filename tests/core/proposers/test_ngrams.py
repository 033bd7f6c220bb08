"""Proposers of n-grams: which tokens they propose."""

import numpy as np
import pytest

from pumice.config import load_config
from pumice.proposers import Proposer, ProposerContext
from pumice.proposers.index import Index
from pumice.proposers.llama_ngrams import NgramCache, NgramMapK, NgramMapK4V, NgramMod, NgramSimple
from pumice.proposers.ngram import Ngram, Prediction
from pumice.registry import load_registry
from pumice.testing import check_proposer

NAMES = ["ngram", "ngram-cache", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-simple", "prediction"]


def started(proposer: Proposer, text: list[int], context: ProposerContext | None = None) -> Proposer:
    proposer.start(context or ProposerContext(100))
    proposer.accept(text)
    return proposer


@pytest.mark.parametrize("name", NAMES)
def test_they_keep_the_contract(name):
    registry = load_registry(load_config())
    check_proposer(registry.proposers[name])


def test_the_longest_match_is_continued_then_the_latest():
    text = [1, 2, 3, 50, 9, 2, 3, 60, 8, 2, 3, 70, 1, 2, 3]
    assert started(Ngram(), text).propose(2) == [50, 9]
    assert started(Ngram(), text[1:]).propose(2) == [70, 1]


def test_a_text_that_repeats_itself_is_continued_beyond_its_end():
    assert started(Ngram(), [7, 8, 9, 7, 8]).propose(7) == [9, 7, 8, 9, 7, 8, 9]
    assert started(Ngram(), [7, 8, 9]).propose(7) == []


def test_outputs_of_others_are_proposed_within_a_salt_and_prompts_are_not():
    shared: dict[object, object] = {}
    first = started(Ngram(), [1, 2, 3], ProposerContext(100, b"a", shared))
    first.accept([4, 5, 6, 7])
    first.close()
    mine, yours = (ProposerContext(100, salt, shared) for salt in (b"a", b"b"))
    assert started(Ngram(), [4, 5], mine).propose(3) == [6, 7]
    assert started(Ngram(), [1, 2], mine).propose(3) == []
    assert started(Ngram(), [4, 5], yours).propose(3) == []


@pytest.mark.parametrize("n", [2, 12])
def test_an_index_of_many_tokens_at_once_is_that_of_single_ones(n):
    text = [*np.random.default_rng(0).integers(5, size=700).tolist(), *range(40)] * 2
    single, whole = Index(n), Index(n)
    for token in text:
        single.extend([token])
    for begin, end in [(0, 1), (1, 400), (400, 410), (410, len(text))]:
        whole.extend(text[begin:end])
    assert (whole._before, whole._latest) == (single._before, single._latest)
    ends = [end for end in range(len(text) - 1, n - 1, -1) if text[end - n : end] == text[-n:]]
    assert list(whole.occurrences(whole.tokens)) == ends[:256]


def test_llama_cpps_want_long_matches():
    text = [*range(20), 50, *range(12)]
    assert started(NgramSimple(), text).propose(3) == [12, 13, 14]
    assert started(NgramSimple(), text[:-1]).propose(3) == []
    assert started(NgramMod(size_n=4, n_min=5), text).propose(9) == [*range(12, 20), 50]
    assert started(NgramMod(size_n=4, n_min=5), [*range(8), 0, 1, 2, 3, 9]).propose(9) == []


def test_map_k_drafts_no_more_than_was_right():
    proposer = started(NgramMapK(size_n=2), [1, 2, 3, 4, 5, 6, 1, 2])
    proposal = proposer.propose(4)
    assert proposal == [3, 4, 5, 6]
    proposer.judge(proposal, 2)
    proposer.accept([3, 4, 9, 1, 2])
    assert len(proposer.propose(4)) == 2


def test_map_k_drafts_again_after_a_wrong_token():
    proposer = started(NgramMapK(size_n=2), [1, 2, 3, 4, 1, 2])
    proposer.judge(proposer.propose(4), 0)
    assert proposer.propose(4) == [3]
    proposer.judge(proposer.propose(4), 1)
    assert proposer.propose(4) == [3]


def test_map_k4v_drafts_what_came_twice_as_often_as_all_others():
    text = [1, 2, 7, 8, 1, 2, 9, 8, 1, 2, 7, 6, 1, 2]
    assert started(NgramMapK4V(size_n=2), text).propose(3) == [7, 6, 1]
    assert started(NgramMapK4V(size_n=2), [*text, 9, 1, 2]).propose(3) == []


def test_a_cache_drafts_token_by_token_what_is_likely():
    text = [1, 2, 3, 4, 5, 6, 1, 2, 3, 4]
    assert started(NgramCache(), text).propose(4) == [5, 6, 1, 2]
    assert started(NgramCache(), [1, 2, 9, 2, 8, 2]).propose(4) == []  # after 2 came 9 and 8


def test_a_prediction_is_followed_and_found_again_after_a_difference():
    context = ProposerContext(100, prediction=[1, 2, 3, 4, 5, 6, 7])
    proposer = started(Prediction(), [50, 51], context)
    assert proposer.propose(3) == [1, 2, 3]
    proposer.accept([1, 2])
    assert proposer.propose(9) == [3, 4, 5, 6, 7]
    proposer.accept([30])
    assert proposer.propose(3) == []
    proposer.accept([4, 5])
    assert proposer.propose(9) == [6, 7]
    proposer.accept([6, 7])
    assert not proposer.propose(3)
    assert not started(Prediction(), [1]).propose(3)
