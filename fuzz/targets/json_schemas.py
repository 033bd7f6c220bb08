"""JSON schemas: an error, or a grammar whose texts are valid according to the package `jsonschema`."""

import json
from collections.abc import Iterable
from typing import Any

import jsonschema
import numpy as np

from fuzz.draw import Draw
from fuzz.grammars import check_message, walk
from pumice.errors import RequestError
from pumice.grammar import grammar_source
from random_schemas import random_schema

MODULES = ("pumice.grammar.forms", "pumice.grammar.schema", "pumice.grammar.strings", "pumice.grammar.alphabet")
MAX_LEN = 500
RUNS = 150
_WORDS = (
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "$id", "not", "minProperties",
    "maxProperties", "patternProperties",
)  # fmt: skip
_KINDS = ("string", "integer", "number", "boolean", "null", "object", "array")
_PATTERNS = (
    "^a+b?$",
    "[0-9]{2}",
    "^(x|yz)*$",
    "^[^\\s]{1,5}$",
    "(",
    "a{99999}",
    "\\p{L}",
    "(?=a)",
    "[z-a]",
    "\\d+$|^x",
)
TOKENS = (
    *(f'"{word}":'.encode() for word in _WORDS), *(f'"{kind}"'.encode() for kind in _KINDS), b'"#/$defs/a"', b'"#"',
    b"{}", b"[]", *(json.dumps(pattern).encode() for pattern in _PATTERNS), b'"date"', b'"hostname"', b"true", b"false",
    b"null", b"1e400",
)  # fmt: skip
_DIFFERENT = {
    "format",
    "not",
    "$ref",
    "$id",
    "oneOf",
    "pattern",
    "patternProperties",
    "multipleOf",
    "minimum",
    "maximum",
}
"""Keywords that the package or llguidance interprets differently: unknown formats, large numbers, Rust's patterns."""


def seeds() -> Iterable[bytes]:
    for seed in range(24):
        text = json.dumps(random_schema(np.random.default_rng(seed), 2)).encode()
        if len(text) < MAX_LEN - 20:
            yield b"\x0c\1\2\3\4\5\6\7\x08\1\2\3\4" + text
    yield b'\0{"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}'


def check(data: bytes) -> None:
    draw = Draw(data)
    choices = Draw(draw.bytes(draw.below(64)))
    text = draw.rest().decode(errors="replace")
    try:
        source = grammar_source(json_schema=text)
        assert source is not None
        answer = walk(source, choices)
    except RequestError as error:
        check_message(error)
        return
    if answer is None:
        return
    value, schema = (json.loads(source, parse_int=_number) for source in (answer, text))
    if not _DIFFERENT.intersection(_keys(schema)) and _is_schema(schema):
        jsonschema.Draft202012Validator(schema).validate(value)


def _number(digits: str) -> int | float:
    """Return an integer, as a float if a float may stand for it in the schema: 21e40 equals the float alone."""
    return int(digits) if len(digits) < 16 else float(digits)


def _is_schema(schema: Any) -> bool:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()
