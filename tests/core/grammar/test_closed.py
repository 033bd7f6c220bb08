"""JSON has the keys that its schema declares, and the white space of a compact writer."""

import pytest
from llguidance import LLMatcher

from pumice import RequestError
from pumice.grammar import close_objects, grammar_source

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AGE = {"properties": {"age": {"type": "integer"}}, "required": ["age"]}
ALICE, BOB = '{"name":"Al"}', '{"name":"Al","age":6}'
EXTRA = '{"name":"Al","x":1}'


def takes(compiler, text, **form):
    matcher = LLMatcher(compiler.vocabulary, grammar_source(**form), log_level=0)
    tokens = compiler.vocabulary.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


CASES = {
    "declared": (NAME, [ALICE], [EXTRA]),
    "open": ({**NAME, "additionalProperties": True}, [ALICE, EXTRA], []),
    "of a type": ({**NAME, "additionalProperties": {"type": "integer"}}, [EXTRA], ['{"name":"Al","x":"y"}']),
    "a pattern": ({**NAME, "patternProperties": {"^x$": {"type": "integer"}}}, [ALICE], []),
    "nothing declared": ({"type": "object"}, ["{}", '{"x":1}'], []),
    "no keys": ({"type": "object", "properties": {}}, ["{}"], ['{"x":1}']),
    "required alone": ({**NAME, "required": ["name", "x"]}, [EXTRA], [ALICE, '{"name":"Al","x":1,"y":1}']),
    "at least two": ({**NAME, "minProperties": 2}, [EXTRA], [ALICE]),
    "inside": ({"type": "array", "items": NAME}, [f"[{ALICE}]"], [f"[{EXTRA}]"]),
    "a reference": ({"$defs": {"n": NAME}, "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, ["null"], [EXTRA]),
    "all of one": ({"allOf": [NAME]}, [ALICE], [EXTRA]),
    "all of two": ({"allOf": [NAME, AGE]}, [BOB], [ALICE, '{"name":"Al","age":6,"x":1}']),
    "beside": ({**NAME, "anyOf": [AGE, {"properties": {"x": {"const": 1}}}]}, [BOB, EXTRA], ['{"name":"Al","y":1}']),
    "a reference beside": ({"$defs": {"n": NAME}, "$ref": "#/$defs/n", **AGE}, [BOB], [EXTRA]),
    "itself": (
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        ['{"next":{"next":{}}}'],
        ['{"next":{"x":1}}'],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_objects_have_the_keys_that_are_declared(name, compiler):
    schema, right, wrong = CASES[name]
    for text in right:
        assert takes(compiler, text, json_schema=schema), text
    for text in wrong:
        assert not takes(compiler, text, json_schema=schema), text


SHARED = {str(n): {"properties": {f"{n}_{key}": {} for key in range(1000)}} for n in range(8)}
SHARED["all"] = {"allOf": [{"$ref": f"#/$defs/{n}"} for n in range(8)]}


def combined(n):
    """Return ``n`` objects with 8,000 keys in all, of 40 characters each."""
    return {"$defs": SHARED, "prefixItems": [{"allOf": [{"$ref": "#/$defs/all"}, {}]}] * n}


def test_keys_that_many_objects_share_are_bounded():
    closed = close_objects("json_schema", combined(2))
    assert [len(node["properties"]) for node in closed["prefixItems"]] == [8000, 8000]
    with pytest.raises(RequestError, match=r"json_schema: 10\d+ characters of the keys"):
        grammar_source(json_schema=combined(100))


COMPACT = ['{"name":"Al"}', '{"name": "Al"}', '{"name": "Al", "age": 6}', '{"name": "Al","age":6}']
SPACED = ['{\n  "name": "Al",\n  "age": 6\n}', '{ "name" : "Al" }']
ENDLESS = ['{"name":  "Al"}', '\n{"name":"Al"}', '{"name":"Al"}\n', '{\n\n\n\n"name":"Al"}']
PERSON = {"type": "object", "properties": {**NAME["properties"], **AGE["properties"]}}


def test_json_is_compact_unless_white_space_is_asked_for(compiler):
    for options in ({"json_schema": PERSON}, {"response_format": {"type": "json_object", "schema": PERSON}}):
        for text in COMPACT:
            assert takes(compiler, text, **options), text
            assert takes(compiler, text, **options, json_whitespace=True), text
        for text in SPACED:
            assert not takes(compiler, text, **options), text
            assert takes(compiler, text, **options, json_whitespace=True), text
        for text in ENDLESS:
            assert not takes(compiler, text, **options), text
            assert not takes(compiler, text, **options, json_whitespace=True), text
