"""Whatever a schema lets through is valid, says an independent validator."""

import json

import numpy as np
import pytest

from grammar_walks import random_text
from imported_late import Late
from nightly import variants
from pumice import RequestError
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


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "hiccup"}, "hiccup"),
        ({"type": 123}, "schema: "),
        (123, "expected a JSON object"),
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "https://example.org/x.json"}, "schema: "),
        ({"enum": [float("nan")]}, "cannot be represented in JSON"),
        ({"enum": [object()]}, "cannot be represented in JSON"),
        ({"type": "string", "pattern": "(a"}, "schema: "),
        ({"properties": {f"p{i}": {"enum": [str(j) * 9 for j in range(99)]} for i in range(300)}}, "but the limit is"),
        ({"type": "string", "description": "x" * 300_000}, "characters, but the limit is"),
    ],
)
def test_a_wrong_schema_is_one_line_before_anything_is_generated(schema, says, compiler):
    with pytest.raises(RequestError, match=says) as error:
        Constraint(Grammar(grammar_source(json_schema=schema)), compiler)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 700


@pytest.mark.parametrize("depth", [70, 5000])
def test_a_deep_schema_is_refused(depth, compiler):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    with pytest.raises(RequestError, match="nested deeper than 64 levels"):
        grammar_source(json_schema=schema)
