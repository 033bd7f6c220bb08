"""Grammars beyond a limit are refused before anything is compiled: the error names the limit and the place."""

import contextlib
import time

import pytest

from pumice import RequestError
from pumice.chat import ChatRequest
from pumice.chat.tool_schemas import ToolSchemas
from pumice.grammar import GrammarChecker, grammar_source
from pumice.grammar.limits import MAX_CHAIN, MAX_DEPTH, MAX_ELEMENTS, MAX_MULTIPLE, MAX_RULES, MAX_TEXT


def references(n):
    """A chain of ``n`` definitions."""
    definitions = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(n)}
    return {"$defs": {**definitions, f"d{n}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def gbnf_rules(n):
    return "root ::= r0\n" + "".join(f'r{i} ::= "a" r{i + 1}\n' for i in range(n)) + f'r{n} ::= "b"'


def lark_rules(n):
    return "start: r0\n" + "".join(f'r{i}: "a" r{i + 1}\n' for i in range(n)) + f'r{n}: "b"'


def nested(n):
    schema = {}
    for _ in range(n // 2):
        schema = {"items": [schema]}
    return schema


BEYOND = {
    "references": ({"json_schema": references(MAX_CHAIN)}, "json_schema: references are nested too deeply; at most"),
    "levels": ({"json_schema": nested(MAX_DEPTH + 2)}, "json_schema: nested deeper than 64 levels"),
    "many levels": ({"json_schema": nested(9999)}, "json_schema: nested deeper than 64 levels"),
    "brackets": ({"json_schema": "[" * 100_000 + "]" * 100_000}, "json_schema: not valid JSON"),
    "properties": (
        {"json_schema": {"items": {"properties": {str(i): {} for i in range(1025)}}}},
        "json_schema: items.properties: 1025 properties are too many; at most 1024",
    ),
    "an enum": ({"json_schema": {"enum": [0] * 5000}}, "json_schema: enum: 5000 entries are too many; at most 4096"),
    "values": ({"json_schema": {"anyOf": [{"enum": [0] * 4000}] * 10}}, "32769 values are too many"),
    "a name": ({"json_schema": {"properties": {"a" * 9000: {}}}}, "properties: 9000 characters of a name"),
    "a text": ({"json_schema": {"const": "a" * 9000}}, "json_schema: const: 9000 characters are too many; at most"),
    "a pattern": ({"json_schema": {"pattern": "a" * 9000}}, "pattern: 9000 characters of a regular expression"),
    "a pattern's repetitions": ({"json_schema": {"pattern": "a{1,3000000000}"}}, "pattern: 3000000000 repetitions"),
    "a pattern of names": ({"json_schema": {"patternProperties": {"(" * 65: {}}}}, "64 levels of parentheses"),
    "a length": ({"json_schema": {"maxLength": 10**10}}, "json_schema: maxLength: 10000000000 is out of range"),
    "a number of items": ({"json_schema": {"minItems": -1}}, "json_schema: minItems: -1 is out of range"),
    "a multiple": ({"grammar": 'start: %json {"multipleOf": 99991}'}, "multipleOf: 99991 is too large; at most 32768"),
    "a place of two lines": ({"json_schema": {"properties": {"a\nb": {"minItems": -1}}}}, r".'a\nb'.minItems"),
    "an infinite number": ({"json_schema": '{"minimum": 1e999}'}, "json_schema: cannot be represented in JSON"),
    "options": ({"json_schema": {"x-guidance": {}}}, "json_schema: unknown keyword 'x-guidance'"),
    "rules of GBNF": ({"grammar": "".join(f"r{i} ::= [a]\n" for i in range(MAX_RULES + 1))}, "grammar: 4097 rules"),
    "a chain in GBNF": ({"grammar": gbnf_rules(MAX_CHAIN)}, "grammar: rules are nested too deeply; at most 512"),
    "elements of GBNF": ({"grammar": "root ::= " + ". " * 5000}, "grammar: rule 'root': 4097 elements are too many"),
    "alternatives of GBNF": ({"grammar": "root ::= ." + "|" * 5000}, "grammar: rule 'root': 4097 elements"),
    "levels of GBNF": ({"grammar": "root ::= " + "(" * 70}, "grammar: rule 'root': 65 levels of parentheses"),
    "repetitions of GBNF": ({"grammar": 'root ::= "a"{3000000000}'}, "grammar: rule 'root': 3000000000 repetitions"),
    "a literal of GBNF": ({"grammar": f'root ::= "{"a" * 9000}"'}, "grammar: rule 'root': 9002 characters"),
    "rules of Lark": ({"grammar": "".join(f"r{i}: /a/\n" for i in range(MAX_RULES + 1))}, "grammar: 4097 rules"),
    "a chain in Lark": ({"grammar": lark_rules(MAX_CHAIN)}, "grammar: rules are nested too deeply; at most 512"),
    "elements of Lark": ({"grammar": "start: X\nX: " + "x?" * 5000}, "rule 'X': 4097 el"),
    "levels of Lark": ({"grammar": "start: " + "(" * 70}, "grammar: rule 'start': 65 levels of parentheses"),
    "levels of grammars": ({"grammar": "start: " + "%lark {start: " * 70}, "grammar: rule 'start': 65 levels"),
    "repetitions of Lark": ({"grammar": "start: x{1,3000000000}"}, "grammar: rule 'start': 3000000000 repetitions"),
    "a literal of Lark": ({"grammar": f'start: "{"a" * 9000}"'}, "grammar: rule 'start': 9000 characters of a literal"),
    "a pattern in Lark": ({"grammar": f"start: /{'a' * 9000}/"}, "rule 'start': 9000 characters of a regular"),
    "a schema in Lark": ({"grammar": 'start: %json {"maxLength": 10000000000}'}, "grammar: rule 'start': maxLength: 1"),
    "a deep schema in Lark": ({"grammar": "start: %json " + "[" * 9999}, "rule 'start': its JSON is nested deeper"),
    "a form of the library": ({"grammar": '{"grammars": [{"lark_grammar": "start: /a/"}]}'}, "expected GBNF or Lark"),
    "a regular expression": ({"regex": "a" * 9000}, "regex: 9000 characters of a regular expression are too many"),
    "choices": ({"choices": ["a"] * 5000}, "choices: expected 1 to 4096 texts"),
    "a choice": ({"choices": ["a", "b" * 9000]}, "choices: text 1: 9000 characters are too many; at most 8192"),
    "everything": ({"grammar": 'root ::= "a"' + " " * 300_000}, "grammar: 300012 characters, but the limit"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BEYOND)
def test_a_grammar_beyond_a_limit_is_refused(kind):
    given, message = BEYOND[kind]
    with pytest.raises(RequestError) as error:
        grammar_source(**given)
    assert message in str(error.value)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"json_schema": references(MAX_CHAIN // 3 - 1)},
        {"json_schema": nested(MAX_DEPTH)},
        {"json_schema": {"properties": {str(i): {"description": "a" * 9000} for i in range(20)}}},
        {
            "json_schema": {
                "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}},
                "$ref": "#/$defs/node",
            }
        },
        {"json_schema": {"$ref": "#/nowhere/0"}},
        {"grammar": gbnf_rules(MAX_CHAIN - 2)},
        {"grammar": lark_rules(MAX_CHAIN - 2)},
        {"grammar": "start: start start | /a/ // a comment\n"},
        {"json_schema": {"multipleOf": MAX_MULTIPLE}},
        {"regex": "(" * MAX_DEPTH + ")" * MAX_DEPTH + "{1,2000000000}"},
        {"choices": ["a" * MAX_TEXT] * 20},
    ],
)
def test_a_grammar_within_the_limits_is_none_of_their_business(given):
    assert grammar_source(**given)


QUADRATIC = {
    "escaped quotes of Lark": 'start: "' + '\\"' * 120_000,
    "escaped slashes of Lark": "start: /" + "\\/" * 120_000,
    "schemas of Lark": "start: " + "%json " * 4000,
    "empty lines": "\n" * 250_000 + "::=",
    "an open repetition": 'root ::= "a"{1' + " " * 250_000,
    "escaped quotes of GBNF": 'root ::= "' + '\\"' * 120_000,
    "a long name": "a" * 250_000 + "::=",
}


@pytest.mark.parametrize("kind", QUADRATIC)
def test_limits_are_checked_in_linear_time(kind):
    started = time.process_time()
    with contextlib.suppress(RequestError):
        grammar_source(grammar=QUADRATIC[kind])
    assert time.process_time() - started < 10  # some hundredths, or many minutes


def tools(*schemas):
    return ChatRequest.read(
        [{"role": "user", "content": "Hello"}],
        tools=[{"name": f"f{i}", "parameters": schema} for i, schema in enumerate(schemas)],
    ).tools


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (references(MAX_CHAIN), "tools: parameters of 'f1': references are nested too deeply"),
        ({"properties": {str(i): {} for i in range(1100)}}, "tools: parameters of 'f1': properties: 1100 properties"),
        ({"x-guidance": {}}, "tools: parameters of 'f1': unknown keyword 'x-guidance'"),
        ({"minimum": float("nan")}, "tools: parameters of 'f1': minimum: nan is not a JSON number"),
    ],
)
def test_the_schema_of_a_tool_has_the_same_limits(schema, message):
    with pytest.raises(RequestError) as error:
        ToolSchemas(tools({"type": "object"}, schema), GrammarChecker())
    assert message in str(error.value)


def test_all_tools_together_have_a_limit():
    schema = {"properties": {"a": {"enum": ["b" * 80] * MAX_ELEMENTS}}}
    with pytest.raises(RequestError, match=r"tools: .* characters of all parameters are too many"):
        ToolSchemas(tools(*[schema] * 4), GrammarChecker())
