"""Masks that follow from the one before, inside strings whose characters are counted: llguidance makes the same."""

import numpy as np
import pytest

from grammar_walks import tokens_of
from pumice.grammar import Compiler, Constraint, Grammar, grammar_source, matcher
from pumice.grammar.strings import marker_of
from tokenizer_fixtures import small


def text(**limits):
    return {"type": "string", **limits}


def many(item):
    return {"type": "array", "items": item, "minItems": 500}


def record(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


KINDS = {
    "short": many(text(maxLength=5)),
    "of two limits": many(text(minLength=4, maxLength=30)),
    "least alone": record(a=text(minLength=2000)),
    "long": many(text(maxLength=2000)),
    "records": many(
        record(
            name=text(maxLength=20),
            note=text(),
            nick={"anyOf": [text(maxLength=9), {"type": "null"}]},
            id={"type": ["string", "integer"], "minLength": 3, "maxLength": 12},
            color={"enum": ["red", "dark green"]},
        )
    ),
    "a definition": {"$defs": {"name": text(maxLength=25)}, **many({"$ref": "#/$defs/name"})},
    "names that are free": many(
        {
            "type": "object",
            "properties": {"name": text(maxLength=15), "named": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        }
    ),
}


@pytest.mark.parametrize("vocabulary", ["demo", "bpe", "spm"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_is_what_llguidance_makes(kind, vocabulary, compiler, monkeypatch):
    monkeypatch.setattr(matcher, "LONG", -1.0)  # every mask is looked at
    if vocabulary != "demo":
        tokenizer = small(vocabulary)
        compiler = Compiler(lambda: tokenizer, tokenizer.n_vocab)
    grammar = Grammar(grammar_source(json_schema=KINDS[kind]))
    followed = 0
    for seed in range(3):
        quick, whole = Constraint(grammar, compiler), Constraint(grammar, compiler)
        assert quick._matcher._strings
        whole._matcher._strings = None
        rng = np.random.default_rng(seed)
        for _ in range(150):
            followed += quick._matcher.follows
            mask = quick.mask()
            assert np.array_equal(mask, whole.mask())
            allowed = tokens_of(mask)
            ends = [token for token in allowed if set(compiler.texts[token]) & set(b'"\\')]
            token = int(rng.choice(ends if ends and rng.random() < 0.2 else allowed))
            if token in compiler.tokenizer.eog:
                break
            quick.accept(token)
            whole.accept(token)
    assert followed > {"least alone": 20, "long": 20, "names that are free": -1}.get(kind, 3)


@pytest.mark.parametrize(
    "schema",
    [
        many(text()),  # nothing is counted
        many(text(maxLength=5, pattern="a+")),
        many(text(maxLength=10, format="date")),
        many({"anyOf": [text(maxLength=5), text(minLength=8)]}),
        many({"oneOf": [text(maxLength=5), {"const": "a longer text"}]}),
        many({"anyOf": [record(a=text(maxLength=5)), record(b=text(maxLength=6))]}),
        {"allOf": [text(maxLength=5), {"enum": ["a", "b"]}]},
        record(a={"items": {"not": text()}, "type": "array"}, b=text(maxLength=5)),
        record(**{"~^`|@#%&=;<>!?*+$": text(maxLength=5)}),  # no character is left
    ],
    ids=str,
)
def test_strings_of_which_more_is_asked_are_left_to_llguidance(schema):
    assert marker_of(grammar_source(json_schema=schema)) is None


@pytest.mark.parametrize("given", [{"regex": "a{1,5}"}, {"choices": ["a", "b"]}, {"grammar": 'root ::= "a"{1,9}'}])
def test_what_is_no_schema_is_left_to_llguidance(given):
    assert marker_of(grammar_source(**given)) is None


def test_the_name_of_a_property_is_left_to_llguidance(compiler, monkeypatch):
    """What comes behind it depends on which it is."""
    monkeypatch.setattr(matcher, "LONG", -1.0)
    schema = {"type": "object", "properties": {"ab": text(maxLength=9)}, "additionalProperties": {"type": "integer"}}
    keeping = Constraint(Grammar(grammar_source(json_schema=schema)), compiler)
    followed = []
    for character in '{"ab":"ab':
        keeping.mask()
        keeping.accept(compiler.tokenizer.tokenize(character, add_special=False)[-1])
        followed.append(keeping._matcher.follows)
    assert followed == [False] * 7 + [True] * 2
