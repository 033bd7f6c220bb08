"""Schemas of generators and of the field are accepted; what is enforced is enforced, and nothing valid is forbidden."""

import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imported_late import Late
from pumice.chat.tool_schemas import ToolSchemas
from pumice.grammar import GrammarChecker
from pumice.grammar.keywords import KEYWORDS, MAX_EXACT, Support
from schema_texts import allows, allows_values

pydantic = Late("pydantic")
ZOD = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "zod_schemas.json").read_text())


def accept(schema: dict[str, Any]) -> None:
    """Compile a schema as one of answers, and as an argument of a tool."""
    allows(schema)
    shared = {key: schema[key] for key in ("$defs", "definitions", "components") if key in schema}
    parameters = {"type": "object", "properties": {"argument": schema}, **shared}
    ToolSchemas([{"function": {"name": "tool", "parameters": parameters}}], GrammarChecker())


@pytest.mark.parametrize("name", ZOD)
def test_schemas_of_zod(name):
    accept(ZOD[name])


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


class Point(NamedTuple):
    x: float
    y: float = 0.0


PYTHON_TYPES = [
    *(str, int, float, bool, bytes, None, Any, object, complex, decimal.Decimal, uuid.UUID, pathlib.Path, re.Pattern),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, Color, Point, list, dict, set, frozenset),
    *(ipaddress.IPv4Address, ipaddress.IPv6Network, list[int], set[str], frozenset[int], tuple[int, str]),
    *(tuple[int, ...], dict[str, int], dict[int, str], dict[uuid.UUID, int], dict[Literal["a", "b"], int], int | None),
    *(Literal["a", 1, None], dict[datetime.date, float], type(None), list[dict[str, list[int]]], int | str | list[int]),
]


@pytest.mark.parametrize("kind", PYTHON_TYPES, ids=str)
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_schemas_of_python_types_by_pydantic(kind, mode):
    accept(pydantic.TypeAdapter(kind).json_schema(mode=mode))


def test_schemas_of_constrained_types_by_pydantic():
    names = "AnyUrl EmailStr IPvAnyAddress Json Base64Bytes SecretStr PastDate AwareDatetime UUID4 ByteSize NameEmail"
    for name in names.split():
        try:
            accept(pydantic.TypeAdapter(getattr(pydantic, name)).json_schema())
        except ImportError:  # email-validator is not installed
            assert "Email" in name
    field = pydantic.Field
    for kind in (
        Annotated[int, field(ge=-(2**63), le=2**63 - 1)],
        Annotated[float, field(gt=-3.4e38, lt=1.79e308)],
        Annotated[float, field(gt=5e-324)],
        Annotated[decimal.Decimal, field(max_digits=12, decimal_places=2)],
        Annotated[int, field(multiple_of=10**6)],
        Annotated[float, field(multiple_of=0.07)],
        Annotated[str, field(pattern=r"^(?i)a[\w--]+$")],
        Annotated[list[int], field(min_length=1, max_length=3)],
        dict[Annotated[str, field(pattern="^[a-z]+$")], int],
    ):
        accept(pydantic.TypeAdapter(kind).json_schema())


INT64 = {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}
SHAPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "schemars: i64": (INT64, [-(2**63), 2**63 - 1, 0], [0.5, "0"]),
    "schemars: u64 of 10^18": (
        {"type": "integer", "format": "uint64", "minimum": 10**18},
        [10**18, 2**64 - 1],
        [7, -(2**62)],
    ),
    "schemars: u128": ({"type": "integer", "format": "uint128", "minimum": 0, "maximum": 2**128 - 1}, [2**127], [-1]),
    "schemars: u8": ({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}, [0, 255], [256, -1]),
    "schemars: f32": (
        {"type": "number", "format": "float", "minimum": -3.4028235e38, "maximum": 3.4028235e38},
        [3.4e38, -0.5],
        ["1"],
    ),
    "schemars: char": ({"type": "string", "format": "char", "minLength": 1, "maxLength": 1}, ["a"], ["ab"]),
    "schemars: HashMap<u32, T>": (
        {"type": "object", "patternProperties": {r"^\d+$": {"type": "string"}}, "additionalProperties": False},
        [{"12": "a"}],
        [{"a": "a"}],
    ),
    "schemars: flatten with deny_unknown_fields": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "allOf": [{"properties": {"b": {"type": "integer"}}}],
            "unevaluatedProperties": False,
        },
        [{"a": 1, "b": 2}],
        [{"a": 1, "c": 2}],
    ),
    "schemars: enum": (
        {
            "oneOf": [
                {"const": "A"},
                {
                    "type": "object",
                    "properties": {"B": {"type": "integer"}},
                    "required": ["B"],
                    "additionalProperties": False,
                },
            ]
        },
        ["A", {"B": 1}],
        ["B"],
    ),
    "schemars: HashSet": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [[1, 2], []], [["a"]]),
    "jsonschema-go: []byte": ({"type": "string", "contentEncoding": "base64"}, ["YQ=="], [1]),
    "jsonschema-go: time.Time": ({"type": "string", "format": "date-time"}, ["2026-11-28T19:00:00Z"], ["today"]),
    "jsonschema-go: *int": ({"type": ["null", "integer"]}, [None, 1], ["a"]),
    "jsonschema-go: json.RawMessage": ({"description": "anything"}, [None, {"a": 1}], []),
    "OpenAPI 3.0: nullable": ({"type": "string", "nullable": True}, ["a", None], [1]),
    "OpenAPI 3.0: nullable enum": ({"type": "string", "enum": ["a"], "nullable": True}, ["a", None], ["b"]),
    "OpenAPI 3.0: nullable reference": (
        {
            "allOf": [{"$ref": "#/components/schemas/A"}],
            "nullable": True,
            "components": {"schemas": {"A": {**INT64, "nullable": True}}},
        },
        [None, 2**62],
        ["a"],
    ),
    "OpenAPI 3.0: exclusive bounds": (
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 1e300, "exclusiveMaximum": True},
        [2],
        [1],
    ),
    "OpenAPI: discriminator": (
        {
            "oneOf": [{"type": "object", "properties": {"t": {"const": "a"}}, "required": ["t"]}],
            "discriminator": {"propertyName": "t"},
        },
        [{"t": "a"}],
        [{"t": "b"}],
    ),
    "one of several that overlap": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [1, 1.5], ["a"]),
    "one of and any of": (
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "oneOf": [{"type": "integer"}, {"type": "null"}]},
        [1],
        [None, "a"],
    ),
    "keys of an enumeration": (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
        [{"a": 1}, {}],
        [{"c": 1}],
    ),
    "keys of a pattern": ({"type": "object", "propertyNames": {"pattern": "^x-"}}, [{"x-a": 1}], [{"a": 1}]),
    "keys of any text": (
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}},
        [{"é": 1}],
        [{"é": "a"}],
    ),
    "no value of a key": (
        {"type": "object", "properties": {"a": {"not": {}}, "b": {"type": "integer"}}},
        [{"b": 1}],
        [{"a": 1, "b": 1}],
    ),
    "everything": ({"not": False}, [1, "a"], []),
    "counts with a fraction": ({"type": "string", "minLength": 2.0, "maxLength": 3.0}, ["ab"], ["a", "abcd"]),
    "a large multiple": ({"type": "integer", "multipleOf": 10**6}, [10**6], ["a"]),
    "a multiple": ({"type": "number", "multipleOf": 0.25}, [0.25, 1.25], [0.3]),
    "open in combination": (
        {"properties": {"a": {"type": "integer"}}, "unevaluatedProperties": True},
        [{"a": 1, "b": 2}],
        [{"a": "x"}],
    ),
    "then without if": ({"type": "integer", "then": {"minimum": 5}, "minContains": 2}, [1], ["a"]),
    "a tuple of draft 7": (
        {"type": "array", "items": [{"type": "integer"}], "additionalItems": False},
        [[1], []],
        [[1, 2], ["a"]],
    ),
    "an unknown format": ({"type": "string", "format": "phone"}, ["+1"], [1]),
    "names that are keywords": (
        {
            "type": "object",
            "properties": {"format": {"type": "string"}, "not": {"type": "integer"}, "pattern": {"const": "[a&&b]"}},
        },
        [{"format": "x", "not": 1, "pattern": "[a&&b]"}],
        [{"not": "a"}],
    ),
    "values that look like schemas": (
        {"enum": [{"format": "x", "not": {}}], "default": {"nullable": True}},
        [{"format": "x", "not": {}}],
        [{}],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_values_of_a_schema(name):
    schema, fitting, other = SHAPES[name]
    accept(schema)
    assert allows_values(schema, *fitting, *other) == [True] * len(fitting) + [False] * len(other)


BOUNDS = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
INTEGERS = st.integers(-(2**70), 2**70) | st.sampled_from(
    [s * 2**n + d for n in (31, 53, 63) for s in (1, -1) for d in (-1, 0, 1)]
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(BOUNDS)), INTEGERS, st.lists(INTEGERS, min_size=8, max_size=8))
def test_integers_within_any_bound_are_allowed_and_small_bounds_are_enforced(keyword, bound, values):
    values = [*values, bound - 1, bound, bound + 1]
    for value, allowed in zip(values, allows_values({"type": "integer", keyword: bound}, *values), strict=True):
        fits = BOUNDS[keyword](value, bound)
        assert allowed or not fits
        assert fits or not allowed or abs(bound) > MAX_EXACT


@pytest.mark.parametrize("name", [name for name, (support, _) in KEYWORDS.items() if support is Support.REFUSED])
def test_refused_keywords_are_named_and_passed_over_in_tools(name):
    value = ["a"] if name == "dependentRequired" else {"type": "string"}
    schema = {"type": "object", name: {"a": value} if name.startswith("depend") else "#" if name[0] == "$" else value}
    with pytest.raises(ValueError, match=re.escape(name)):
        allows(schema)
    ToolSchemas([{"function": {"name": "tool", "parameters": schema}}], GrammarChecker())
