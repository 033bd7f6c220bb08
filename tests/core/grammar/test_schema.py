"""The rules of strings by their places: in which string of a JSON text one is, and what a schema asks there."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pumice.grammar import grammar_source
from pumice.grammar.alphabet import sets_of_pattern, sets_of_text
from pumice.grammar.json_position import JsonPosition, Path
from pumice.grammar.schema import strings_of

VALUE = {"a": ["x", {"b é": "yé😀\n", "": ["", [], {}, "\u0001\\"]}, "z"], 'q"': {"c": -1.5e3, "d": None}, "e": "{[:,"}


def paths_of(value: Any, ascii: bool, path: Path = ()) -> Iterator[Path]:
    """Return the paths of the texts in a value."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for each in value:
            yield from paths_of(each, ascii, (*path, None))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from paths_of(each, ascii, (*path, json.dumps(name, ensure_ascii=ascii)[1:-1]))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii", [False, True])
def test_the_place_of_a_string(ascii, indent):
    text, place = json.dumps(VALUE, ensure_ascii=ascii, indent=indent).encode(), JsonPosition()
    begun = []
    for byte in text:
        place.accept(bytes([byte]))
        if place.path is not None and not place.size:
            begun.append(place.path)
    assert begun == list(paths_of(VALUE, ascii))


@pytest.mark.parametrize("seed", range(8))
def test_tokens_that_cross_strings(seed):
    rng = np.random.default_rng(seed)
    text = json.dumps(VALUE, ensure_ascii=bool(seed % 2)).encode()
    by_bytes, by_tokens = JsonPosition(), JsonPosition()
    while text:
        n = int(rng.integers(1, 9))
        for byte in text[:n]:
            by_bytes.accept(bytes([byte]))
        by_tokens.accept(text[:n])
        text = text[n:]
        assert by_tokens.path == by_bytes.path
        assert by_tokens.path is None or by_tokens.size == by_bytes.size


SCHEMA = {
    "$id": "https://example.org/schema",
    "$defs": {
        "node": {"properties": {"next": {"$ref": "#/$defs/node"}, "id": {"type": "string", "pattern": "^[ab]$"}}}
    },
    "properties": {
        "node": {"$ref": "#/$defs/node"},
        "free": {"type": "string"},
        "short": {"type": ["null", "string"], "maxLength": 3},
        "host": {"type": "string", "format": "hostname"},
        "date": {"type": "string", "format": "date", "maxLength": 30},
        "either": {"anyOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"enum": ["x", 5, "yz"]}, {"type": "integer"}]},
        "enum": {"enum": ["x", "yz"]},
        "list": {
            "prefixItems": [{"pattern": "^[a-c]$", "type": "string"}],
            "items": {"maxLength": 2, "type": "string"},
        },
        "nested": {"enum": [{"a": "text"}, ["text"]], "maxLength": 2},
        "large": {"type": "string", "pattern": "|".join(map(chr, range(0x4E00, 0x4F80)))},
        "elsewhere": {"$id": "a", "maxLength": 3},
        "odd": {"type": "string", "pattern": r"^\p{L}$"},
        'q"': {"maxLength": 3},
    },
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^x*$"}},
}


@pytest.mark.parametrize(
    ("path", "alphabet"),
    [
        (("node", "id"), sets_of_pattern("[ab]")),
        (("node", "next", "next", "id"), sets_of_pattern("[ab]")),
        (("short",), frozenset()),
        (("host",), sets_of_pattern("[A-Za-z][0-9][.][-]")),
        (("either",), sets_of_pattern("[0-9]") | sets_of_text("xyz")),
        (("list", None), sets_of_pattern("[a-c]")),
        (("other", "any"), sets_of_pattern("x")),
        *(((name,), None) for name in ("free", "date", "enum", "large", "odd", "elsewhere", 'q\\"', "n\\u006fde")),
        (("nested", "a"), None),
        ((), None),
    ],
)
def test_character_sets_of_a_string(path, alphabet):
    strings = strings_of(grammar_source(json_schema=SCHEMA))
    assert strings
    rule = strings.rule(path)
    assert (rule and rule.alphabet) == alphabet


COUNTED = {"type": "string", "minLength": 2, "maxLength": 5}


@pytest.mark.parametrize(
    ("schema", "lengths"),
    [
        (COUNTED, (2, 5)),
        ({"maxLength": 5}, (0, 5)),
        ({"anyOf": [COUNTED, {"type": "null"}]}, (2, 5)),
        ({"$defs": {"a": COUNTED}, "allOf": [{"$ref": "#/$defs/a"}]}, (2, 5)),
        ({**COUNTED, "properties": {"a": {"type": "string", "maxLength": 1}}}, (2, 5)),
        ({"type": "string", "minLength": 2}, None),
        ({**COUNTED, "pattern": "a"}, None),
        ({**COUNTED, "enum": ["ab", "abc"]}, None),
        ({**COUNTED, "anyOf": [{"type": "string"}]}, None),
        ({"maxLength": 9, "anyOf": [COUNTED]}, None),
        ({"anyOf": [COUNTED, {"type": "string"}]}, None),
        ({"anyOf": [COUNTED, True]}, None),
        ({"anyOf": [COUNTED, {"const": "a longer text"}]}, None),
        ({"oneOf": [COUNTED, {"type": "string", "maxLength": 5}]}, None),
    ],
)
def test_strings_with_length_bounds_alone(schema, lengths):
    strings = strings_of(grammar_source(json_schema=schema))
    assert strings
    rule = strings.rule(())
    assert (rule and rule.lengths) == lengths


def test_elements_that_may_be_anything_are_not_counted():
    schema = {"type": "array", "prefixItems": [COUNTED]}
    strings = strings_of(grammar_source(json_schema=schema))
    assert strings
    assert strings.rule((None,)).lengths is None
    closed = strings_of(grammar_source(json_schema={**schema, "items": False}))
    assert closed
    assert closed.rule((None,)).lengths == (2, 5)


@pytest.mark.parametrize(("n", "known"), [(200, True), (300, False)])
def test_few_schemas_are_looked_at_for_a_string(n, known):
    schema = {"anyOf": [{"type": "string", "maxLength": 3 + i} for i in range(n)]}
    strings = strings_of(grammar_source(json_schema=schema))
    assert strings
    assert (strings.rule(()) is not None) == known


def test_few_alphabets_of_a_schema_have_words():
    schema = {"properties": {c: {"type": "string", "pattern": f"^[{c}-z]{{1,9}}$"} for c in "abcdefghijk"}}
    strings = strings_of(grammar_source(json_schema=schema))
    assert strings
    rules = [strings.rule((name,)) for name in schema["properties"]]
    assert [rule.by_words for rule in rules] == [True] * 8 + [False] * 3


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"prefixItems": [{"pattern": "^[ab]{1,2}$"}]}},
        {"properties": {"a": {"additionalProperties": {"pattern": "^[ab]{1,2}$"}}}},
        {"$defs": {"a": {"pattern": "^[ab]{1,2}$"}}, "items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}},
        {"items": {"$ref": "#"}, "pattern": "^[ab]{1,2}$"},
    ],
)
def test_alphabets_are_found_before_anything_is_written(schema):
    strings = strings_of(grammar_source(json_schema=schema))
    assert strings
    assert strings.alphabets == {sets_of_pattern("^[ab]{1,2}$")}


def test_a_large_schema_is_examined_in_its_first_paths():
    many = {f"p{i}": {"properties": {f"q{j}": {"items": {}} for j in range(9)}} for i in range(300)}
    strings = strings_of(grammar_source(json_schema={"properties": {**many, "last": {"maxLength": 5}}}))
    assert strings
    assert not strings.alphabets
    assert not strings.rule(("last",)).by_words


@pytest.mark.parametrize(
    "given",
    [
        {"regex": "a{1,5}"},
        {"choices": ["maxLength", "b"]},
        {"json_schema": {"type": "string"}},
    ],
)
def test_unrestricted_strings_have_no_rules(given):
    assert strings_of(grammar_source(**given)) is None
