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
from hypothesis import given
from hypothesis import strategies as st

from imported_late import Late
from pumice.chat.tool_schemas import ToolSchemas
from pumice.grammar import GrammarChecker
from pumice.grammar.keywords import KEYWORDS, MAX_EXACT, Support
from schema_texts import allows, allows_values

pydantic = Late("pydantic")
FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
ZOD = json.loads((FIXTURES / "zod_schemas.json").read_text())


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


SHAPES = json.loads((FIXTURES / "schema_values.json").read_text())  # as generators write them, and odd ones


@pytest.mark.parametrize("name", SHAPES)
def test_values_of_a_schema(name):
    schema, fitting, other = SHAPES[name].values()
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


@given(st.sampled_from(sorted(BOUNDS)), INTEGERS, st.lists(INTEGERS, min_size=8, max_size=8))
def test_integers_within_any_bound_are_allowed_and_small_bounds_are_enforced(keyword, bound, values):
    values = [*values, bound - 1, bound, bound + 1]
    for value, allowed in zip(values, allows_values({"type": "integer", keyword: bound}, *values), strict=True):
        fits = BOUNDS[keyword](value, bound)
        assert allowed or not fits
        assert fits or not allowed or abs(bound) + keyword.startswith("exclusive") > MAX_EXACT


@pytest.mark.parametrize("name", [name for name, (support, _) in KEYWORDS.items() if support is Support.REFUSED])
def test_refused_keywords_are_named_and_passed_over_in_tools(name):
    value = ["a"] if name == "dependentRequired" else {"type": "string"}
    schema = {"type": "object", name: {"a": value} if name.startswith("depend") else "#" if name[0] == "$" else value}
    with pytest.raises(ValueError, match=re.escape(name)):
        allows(schema)
    ToolSchemas([{"function": {"name": "tool", "parameters": schema}}], GrammarChecker())
