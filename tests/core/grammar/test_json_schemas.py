"""Whatever a schema lets through is valid, says an independent validator."""

import json

import numpy as np
import pytest

from grammar_walks import random_text
from imported_late import Late
from nightly import variants
from pumice.grammar import Constraint, Grammar, grammar_source
from random_schemas import random_schema

jsonschema = Late("jsonschema")


@pytest.mark.parametrize("seed", variants(range(60), range(30)))
def test_random_texts_of_random_schemas_are_valid(seed, compiler):
    rng = np.random.default_rng(seed)
    schema = random_schema(rng)
    jsonschema.Draft202012Validator.check_schema(schema)
    source = grammar_source(json_schema=schema)
    texts = [random_text(Constraint(Grammar(source), compiler), compiler.tokenizer, rng) for _ in range(4)]
    assert any(texts), schema
    for text in filter(None, texts):
        jsonschema.validate(json.loads(text), schema)


SCHEMAS = {
    "reference": {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"const": 1}}}},
        "$ref": "#/$defs/node",
    },
    "all of": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 40}]},
    "long text": {"type": "string", "minLength": 5, "maxLength": 5000},
    "format": {"type": "string", "format": "date"},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"},
    "one of": {"oneOf": [{"type": "boolean"}, {"type": "null"}]},
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, {"enum": ["a", "b"]}], "items": False, "minItems": 2},
    "additional": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0},
    "anything": {},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_random_texts_are_valid(name, compiler):
    rng = np.random.default_rng(1)
    validator = jsonschema.Draft202012Validator(SCHEMAS[name], format_checker=jsonschema.FormatChecker())
    source = grammar_source(json_schema=SCHEMAS[name])
    texts = [random_text(Constraint(Grammar(source), compiler), compiler.tokenizer, rng) for _ in range(8)]
    assert any(texts)
    for text in filter(None, texts):
        validator.validate(json.loads(text))
