"""Masks from words, inside strings that tell few characters apart: llguidance makes the same from all tokens."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pumice
from nightly import crossed, variants
from pumice.grammar import Compiler, Constraint, Grammar, grammar_source
from pumice.grammar.strings import StringMasks
from random_schemas import random_pattern, random_rules
from tokenizer_fixtures import small

VOCABULARIES = Path(__file__).parents[3].parent / "shared" / "vocabs"


@pytest.fixture(autouse=True)
def words_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words make every mask that they can make, however quick llguidance is."""
    monkeypatch.setattr(StringMasks, "by_words", property(lambda masks: masks._rule is not None))


def text(**limits):
    return {"type": "string", **limits}


def pattern(regex, **limits):
    return text(pattern=regex, **limits)


def many(item):
    return {"type": "array", "items": item, "minItems": 500}


def record(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


KINDS = {
    "short": many(text(maxLength=5)),
    "of two limits": many(text(minLength=4, maxLength=30)),
    "long": many(text(maxLength=2000)),
    "least alone": many(text(minLength=200)),
    "a class": many(pattern("^[a-z0-9_]{3,16}$")),
    "any": many(pattern("^.{1,50}$")),
    "a class of several": many(pattern(r"^[\w\s.-]{2,12}$")),
    "a class of others": many(pattern("^[^aeiou\\d]{2,12}$")),
    "characters that are no ASCII": many(pattern("^[é-ü一-鿿]{1,9}$")),
    "escapes": many(pattern(r'^[\n"\\/\x41\u00e9]{1,9}$')),
    "within a pattern": many(pattern("^[A-Za-z ]{0,12}-[0-9]{3}$")),
    "no anchors": many(pattern("[A-Z]{2,4}")),
    "a pattern and lengths": many(pattern("^[a-z]+( [a-z]+)*$", minLength=5, maxLength=12)),
    "a format": many(text(format="hostname", maxLength=20)),
    "one of several patterns": many(
        {"anyOf": [pattern("^[a-f]{2,9}$"), pattern("^[0-9a-c]{3,5}$"), {"enum": ["axe"]}]}
    ),
    "a pattern or a text": many({"anyOf": [pattern("^[0-9]{2,9}$"), {"const": "one hundred"}]}),
    "all of several": many({"allOf": [pattern("^[a-z]*$"), text(maxLength=9)]}),
    "records": many(
        record(
            name=text(maxLength=20),
            user=pattern("^[a-z_]{3,8}$"),
            note=text(),
            nick={"anyOf": [text(maxLength=9), {"type": "null"}]},
            id={"type": ["string", "integer"], "minLength": 3, "maxLength": 12},
            color={"enum": ["red", "dark green"]},
            at=text(format="date"),
            inner=record(x=pattern("^x{0,30}$"), y={"type": "array", "items": pattern("^[xy]{0,9}$"), "maxItems": 2}),
        )
    ),
    "a definition": {"$defs": {"name": pattern("^[a-z]{2,25}$")}, **many({"$ref": "#/$defs/name"})},
    "a counted definition": {"$defs": {"name": text(maxLength=25)}, **many({"$ref": "#/$defs/name"})},
    "names that are free": many(
        {
            "type": "object",
            "properties": {"name": text(maxLength=15), "named": {"type": "integer"}, 'a"b': pattern("^[ab]{1,3}$")},
            "additionalProperties": pattern("^[a-z]{1,5}$"),
            "required": ["name"],
        }
    ),
    "a tuple": {"type": "array", "prefixItems": [pattern("^[a-z]{2,9}$"), {"enum": ["b", "cd"]}], "minItems": 90},
}


COUNTED = ("short", "of two limits", "long", "records", "a counted definition", "names that are free")


@cache
def unusual(compiler) -> np.ndarray:
    """bool [n_vocab]: tokens that end strings, escape, or have characters of several bytes."""
    found = np.zeros(compiler.n_vocab, np.bool_)
    found[: len(compiler.texts)] = [bool(set(text) & set(b'"\\\xc3\xe4\xf0')) for text in compiler.texts]
    return found


def compare(schema, compiler, rng, n_steps=120) -> tuple[int, int]:
    """Walk through what a schema allows; the masks that were made from words, and those that followed."""
    grammar = Grammar(grammar_source(json_schema=schema))
    quick, whole = Constraint(grammar, compiler), Constraint(grammar, compiler)
    whole._matcher._strings = None
    n_words, n_followed, written = 0, 0, b""
    for _ in range(n_steps):
        follows = quick._matcher.follows
        n_followed += follows
        n_words += quick._matcher._by_words and not follows
        assert np.array_equal(quick.allowed(), whole.allowed()), (schema, written[-60:])
        mask = quick.mask()
        assert np.array_equal(mask, whole.mask()), (schema, written[-60:])
        allowed = np.unpackbits(mask.view(np.uint8), bitorder="little", count=compiler.n_vocab).view(np.bool_)
        fewer = allowed & unusual(compiler)
        token = int(rng.choice(np.flatnonzero(fewer if fewer.any() and rng.random() < 0.2 else allowed)))
        if token in compiler.tokenizer.eog:
            break
        written += compiler.texts[token]
        quick.accept(token)
        whole.accept(token)
    return n_words, n_followed


@pytest.mark.parametrize(("kind", "vocabulary"), crossed([*KINDS], ["demo", "bpe", "spm"]))
def test_words_make_the_masks_of_llguidance(kind, vocabulary, compiler):
    if vocabulary != "demo":
        tokenizer = small(vocabulary)
        compiler = Compiler(lambda: tokenizer, tokenizer.n_vocab)
    made = np.sum([compare(KINDS[kind], compiler, np.random.default_rng(seed)) for seed in range(2)], axis=0)
    assert made.sum() > 3
    assert (made[1] > 3) == (kind in COUNTED)


@given(seed=st.integers(0, 2**32 - 1))
def test_words_make_the_masks_of_random_schemas(seed, compiler):
    rng = np.random.default_rng(seed)
    compare(random_rules(rng), compiler, rng)


@pytest.mark.parametrize("name", variants(["llama-bpe", "phi-3", "qwen2"], ["phi-3", "qwen2"]))
def test_words_make_the_masks_of_published_vocabularies(name):
    path = VOCABULARIES / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    tokenizer = pumice.load_tokenizer(path)
    compiler = Compiler(lambda: tokenizer, tokenizer.n_vocab)
    rng = np.random.default_rng(0)
    schemas = [KINDS[kind] for kind in ("records", "any", "a format")]
    schemas += [many(pattern(random_pattern(rng))) for _ in range(4)]
    assert np.sum([compare(schema, compiler, rng, 60) for schema in schemas]) > 50
