"""Copies of masking samplers advance independently, with the masks that the original has later."""

import math
from typing import Any

import numpy as np
import pytest

from pumice.grammar import BudgetedReasoning, Compiler, Constraint, Grammar, ReasoningBudget, grammar_source
from pumice.sampler import Chain, MaskSampler, SamplerContext, mask
from pumice.sampler.forbidden import ForbiddenTokens
from pumice_samplers import SAMPLERS

STRING: dict[str, Any] = {"type": "string"}
RECORDS = {
    "type": "array",
    "minItems": 30,
    "items": {
        "type": "object",
        "properties": {
            "short": {**STRING, "maxLength": 5},
            "code": {**STRING, "pattern": "^[a-z0-9]{2,9}-[A-Z]{1,3}$"},
            "kind": {"enum": ["reader", "reads", "writer"]},
            "n": {"type": "integer"},
        },
        "required": ["short", "code", "kind", "n"],
        "additionalProperties": False,
    },
}
SOURCES = {
    "records": grammar_source(json_schema=RECORDS),
    "words": grammar_source(regex="([a-z]+ )*"),
    "choices": grammar_source(choices=["once upon a time", "once upon", "one day"]),
}
GRAMMARS = {
    **{name: Grammar(source) for name, source in SOURCES.items()},
    "reasoning": Grammar(SOURCES["records"], reasoning=("<think>", "</think>"), reasons=True),
    "triggers": Grammar(SOURCES["choices"], begins=("[", "on"), again=True),
    "firsts": Grammar(SOURCES["records"], first=("[{",), again=True),
}


def samplers(name: str, compiler: Compiler) -> list[MaskSampler]:
    n_vocab, ends = compiler.n_vocab, sorted(compiler.tokenizer.eog)
    if name == "budget":
        budget = ReasoningBudget(9, compiler.tokenizer.tokenize_following("</think>"), "<think>", "</think>", True)
        constraint = Constraint(GRAMMARS["reasoning"], compiler)
        return [BudgetedReasoning(budget, compiler.tokenizer, n_vocab, 0, constraint)]
    more = [ForbiddenTokens(some, mask.without_tokens(some, n_vocab), n) for some, n in ((ends, 4), ([5, 6], math.inf))]
    return [Constraint(GRAMMARS[name], compiler), *more]


def chain_of(name: str, compiler: Compiler) -> Chain:
    context = SamplerContext(compiler.n_vocab, tokenizer=compiler.tokenizer)
    return Chain([*samplers(name, compiler), SAMPLERS["greedy"]()], context)


def allowed(found: np.ndarray | None, n_vocab: int) -> np.ndarray:
    return np.arange(n_vocab) if found is None else np.flatnonzero(mask.to_bits(found, n_vocab))


@pytest.mark.parametrize("name", [*GRAMMARS, "budget"])
def test_masks_ahead_are_those_of_a_sequence_without_them(compiler: Compiler, name: str) -> None:
    """Whether drafted tokens were right, wrong, or not allowed at all."""
    n_vocab, random = compiler.n_vocab, np.random.default_rng(len(name))
    chain, plain, ends = chain_of(name, compiler), chain_of(name, compiler), compiler.tokenizer.eog
    n_reused = 0
    for _ in range(60):
        route, fork = [], [sampler.fork() for sampler in chain.masking]
        for _ in range(int(random.integers(5))):
            masks = [made for sampler in fork if sampler is not None and (made := sampler.mask()) is not None]
            choice = allowed(np.bitwise_and.reduce(masks) if masks else None, n_vocab)
            choice = [token for token in choice.tolist() if token not in ends]
            if not choice:
                break
            route.append(int(random.choice(choice)))
            for sampler in fork:
                assert sampler is not None
                sampler.accept(route[-1])
        if route and random.random() < 0.2:
            route[-1] = int(random.integers(n_vocab))
        drafted, possible = chain.look_ahead(route, 6, ends)
        assert len(possible) == 1 + len(drafted)
        n_taken = int(random.integers(1 + len(drafted)))
        for i in range(1 + n_taken):
            np.testing.assert_array_equal(allowed(chain.mask, n_vocab), allowed(plain.mask, n_vocab))
            np.testing.assert_array_equal(allowed(possible[i].mask, n_vocab), allowed(plain.mask, n_vocab))
            assert possible[i].few == plain.few == chain.few
            if i == n_taken:
                break
            for each in (chain, plain):
                each.accept(drafted[i])
            n_reused += chain.was_expected
        choice = [token for token in allowed(plain.mask, n_vocab).tolist() if token not in ends]
        if not choice:
            break
        token = int(random.choice(choice))  # a draft may tell it, too
        for each in (chain, plain):
            each.accept(token)
        assert chain.was_expected == (drafted[n_taken : n_taken + 1] == [token])
    assert n_reused > (5 if name != "choices" else 0)


def test_forced_tokens_continue_a_draft(compiler: Compiler) -> None:
    """Up to the number of tokens, but no end token."""
    chain = chain_of("choices", compiler)
    text = compiler.tokenizer.tokenize_following("once upon a time")
    drafted, _ = chain.look_ahead(text[:2], 20, compiler.tokenizer.eog)
    assert compiler.tokenizer.detokenize(drafted).strip() in ("once upon", "once upon a time")
    drafted, possible = chain.look_ahead(text[:-1], 20, compiler.tokenizer.eog)
    assert drafted == text
    assert possible[-2].few == (text[-1],)
    assert len(chain.look_ahead(text[:1], 1, ())[0]) == 1
