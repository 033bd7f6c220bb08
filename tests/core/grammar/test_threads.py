"""Masks of several sequences at once: the same as those that are made one after the other."""

import numpy as np
import pytest

import pumice
from grammar_walks import tokens_of
from pumice import RequestError
from pumice.grammar import Constraint, Grammar, grammar_source, lexers, threads

SHORT = {"type": "array", "items": {"type": "string", "pattern": "^.{0,5}$"}, "minItems": 50}
GRAMMARS = [
    Grammar(grammar_source(json_schema=SHORT)),
    Grammar(grammar_source(json_schema={"type": "array", "items": {"enum": ["once upon a time", "one day"]}})),
    Grammar(grammar_source(regex="(.|\n)*")),
    Grammar(grammar_source(choices=["yes", "no"])),  # it ends before the others
    Grammar(grammar_source(json_schema=SHORT), reasoning=("<think>", "</think>"), reasons=True),  # never begins
    Grammar(grammar_source(json_schema=SHORT), reasoning=("a", "b")),  # reasoning may begin
]


@pytest.fixture
def by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads make all masks, however quick they are."""
    monkeypatch.setattr(lexers, "MAX_COPIES", 3)
    monkeypatch.setattr(lexers, "SLOW_MASK", -1.0)
    monkeypatch.setattr(threads, "MIN_SECONDS", -1.0)


def test_threads_make_the_same_masks(by_threads, compiler, monkeypatch):
    made = []
    fill = threads.MaskThreads.fill
    monkeypatch.setattr(threads.MaskThreads, "fill", lambda self, *all: made.append(len(all[0])) or fill(self, *all))
    constraints = [Constraint(grammar, compiler) for grammar in GRAMMARS for _ in range(2)]
    alone = [Constraint(grammar, compiler) for grammar in GRAMMARS for _ in range(2)]
    rng = np.random.default_rng(0)
    for _ in range(60):
        Constraint.make_masks(constraints)
        for together, other in zip(constraints, alone, strict=True):
            mask, expected = together.mask(), other.mask()
            assert (mask is None) == (expected is None)
            assert mask is None or np.array_equal(mask, expected)
            free = [compiler.tokenizer.tokenize("word", add_special=False)[0]]
            token = int(rng.choice(free if mask is None else tokens_of(mask)))
            if token not in compiler.tokenizer.eog:
                together.accept(token)
                other.accept(token)
    assert max(made) >= 8  # most of those that are not free


def test_a_mask_that_cannot_be_made_is_an_error_of_its_own(by_threads, compiler, monkeypatch):
    from llguidance import LLParserLimits

    limits = LLParserLimits(max_lexer_states=60, verbose_errors=False)
    monkeypatch.setattr("pumice.grammar.compiler.parser_limits", lambda: limits)
    constraints = [Constraint(Grammar(grammar_source(regex=regex)), compiler) for regex in ("a*", ".*a.{17}", "a*b")]
    [token] = compiler.tokenizer.tokenize("aa", add_special=False)[-1:]
    failed = set()
    for _ in range(20):
        Constraint.make_masks(constraints)
        for each in constraints:
            try:
                assert token in tokens_of(each.mask())
                each.accept(token)
            except RequestError as error:
                failed.add((each, "the grammar cannot go on" in str(error)))
    assert failed == {(constraints[1], True)}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_gives_the_same_texts(by_threads, temperature, monkeypatch):
    def texts() -> list[str]:
        with pumice.load(pumice.demo_model_path(), n_ctx=512, config={"n_parallel": 4}) as model:
            done = model.generate_many(
                ["Once", "The", "A", "One day"], json_schema=SHORT, max_tokens=30, temperature=temperature, seed=7
            )
            return [each.text for each in done]

    together = texts()
    monkeypatch.setattr(lexers, "MAX_COPIES", 1)
    assert texts() == together
