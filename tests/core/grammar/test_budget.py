"""A budget of reasoning: counted between its marks, then the closing tokens alone, then what the answer may be."""

import pytest

from grammar_walks import tokens_of
from pumice.grammar import BudgetedReasoning, Constraint, Grammar, ReasoningBudget, grammar_source

END = "\n</think>\n\n"


@pytest.fixture
def budgeted(compiler):
    """A sampler with a budget of so many tokens, and the grammar of the answer if there is one."""

    def make(n_tokens, reasons=True, source=None, n_prompt=0):
        tokenizer = compiler.tokenizer
        budget = ReasoningBudget(n_tokens, tokenizer.tokenize_following(END), "<think>", "</think>", reasons)
        grammar = source and Grammar(source, reasoning=("<think>", "</think>"), reasons=reasons)
        constraint = Constraint(grammar, compiler, n_prompt) if grammar else None
        return BudgetedReasoning(budget, tokenizer, compiler.n_vocab, n_prompt, constraint)

    return make


def write(sampler, compiler, text):
    for token in compiler.tokenizer.tokenize_following(text):
        mask = sampler.mask()
        assert mask is None or token in tokens_of(mask)
        sampler.accept(token)


def close(sampler, compiler):
    """Accept what alone is allowed, to the end of the reasoning; it is known beforehand."""
    closing = compiler.tokenizer.tokenize_following(END)
    for i, token in enumerate(closing):
        assert list(sampler.forced()) == closing[i:]
        assert tokens_of(sampler.mask()) == [token]
        sampler.accept(token)


def test_a_budget_is_spent_by_somebody_else(budgeted, compiler):
    """After the next token, which may be on its way; outside of reasoning nothing is spent."""
    sampler = budgeted(40, reasons=False)
    sampler.spend()
    write(sampler, compiler, "<think>aa")
    sampler.spend()
    assert sampler.mask() is None
    write(sampler, compiler, "b")
    close(sampler, compiler)


def test_the_model_begins_and_ends_its_reasoning(budgeted, compiler):
    """Only reasoning takes from the budget, and a second part has what the first one left."""
    sampler = budgeted(40, reasons=False)
    write(sampler, compiler, "much more text than forty tokens have room for, before it begins " * 3 + "<think>")
    write(sampler, compiler, "short</think>")
    assert sampler.mask() is None
    write(sampler, compiler, "and again <think>")
    for _ in range(40):
        if sampler.mask() is not None:
            break
        write(sampler, compiler, "a")
    else:
        pytest.fail("the second part has a budget of its own")
    close(sampler, compiler)


def test_the_mark_is_text_within_the_grammar(budgeted, compiler):
    for reasons, before in ((False, ""), (True, "a</think>")):
        sampler = budgeted(30, reasons, source=grammar_source(json_schema={"type": "string"}))
        for part in (before, '"', "<think>", "a" * 40, '"'):
            write(sampler, compiler, part)
        assert not sampler.is_closing


def test_the_grammar_of_the_answer_begins_behind_it(budgeted, compiler):
    sampler = budgeted(2, source=grammar_source(choices=["yes", "no"]))
    write(sampler, compiler, "n")
    write(sampler, compiler, "o")
    close(sampler, compiler)
    BudgetedReasoning.make_masks([sampler, budgeted(1)])
    assert {compiler.texts[token] for token in tokens_of(sampler.mask())} == {b"y", b"yes", b"n"}
