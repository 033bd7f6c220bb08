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
            "items": {"type": "string", "maxLength": 2},
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
