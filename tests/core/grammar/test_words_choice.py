"""Which masks are made from words follows from the schema alone, and they are made before anything is written."""

import numpy as np
import pytest

from pumice.grammar import Compiler, Constraint, Grammar, grammar_source


def text(**limits):
    return {"type": "string", **limits}


def pattern(regex, **limits):
    return text(pattern=regex, **limits)


def many(item):
    return {"type": "array", "items": item, "minItems": 500}


USUAL = {
    "a most": (text(maxLength=2000), True),
    "a least": (text(minLength=200), False),
    "a counted class": (pattern("^[a-z]{3,16}$"), True),
    "a class any number of times": (pattern("^[a-z]+[0-9]*$"), False),
    "a class that many times": (pattern("^[a-z]{3}-[0-9]{4,}$"), False),
    "a pattern and a most": (pattern("^[a-z]+$", maxLength=9), True),
    "a format": (text(format="hostname"), True),
    "one of two": ({"anyOf": [pattern("^[a-z]+$"), text(maxLength=9)]}, True),
    "nothing": (text(), False),
}


@pytest.mark.parametrize("kind", USUAL)
def test_the_schema_alone_says_which_masks_are_made_from_words(kind, compiler, caplog):
    schema, by_words = USUAL[kind]
    made = []
    with caplog.at_level("DEBUG", "pumice"):
        for _ in range(3):
            constraint = Constraint(Grammar(grammar_source(json_schema=many(schema))), compiler)
            for character in '["ab':
                constraint.accept(compiler.tokenizer.tokenize(character, add_special=False)[-1])
                made.append(constraint._matcher._by_words)
    assert made == [False, by_words, by_words, by_words] * 3
    logged = [record.message for record in caplog.records if "strings at" in record.message]
    assert logged == (["grammar: strings at [None]: masks from words"] if by_words else logged)


def test_words_are_made_when_a_grammar_is_compiled(compiler, monkeypatch):
    schema = {"type": "array", "prefixItems": [pattern("^[a-q]{1,9}$"), many(pattern("^[r-z]{2,4}$"))], "minItems": 2}
    constraint = Constraint(Grammar(grammar_source(json_schema=schema)), compiler)
    monkeypatch.setattr(Compiler, "_start", None)
    rng = np.random.default_rng(0)
    words = 0
    for _ in range(40):
        words += constraint._matcher._by_words
        mask = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little", count=compiler.n_vocab)
        token = int(rng.choice(np.flatnonzero(mask)))
        if token in compiler.tokenizer.eog:
            break
        constraint.accept(token)
    assert words
