"""Texts read as values of a schema, as calls have them whose arguments stand between tags."""

import pytest

from imported_late import Late
from pumice.chat.schemas import ALL, typed, types_of

jsonschema = Late("jsonschema")

TEXT = {"type": "string"}
ROOT = {
    "$defs": {
        "zip": {"anyOf": [TEXT, {"type": "null"}]},
        "unit": {"enum": ["1", "2"]},
        "tree": {"anyOf": [{"$ref": "#/$defs/tree"}] * 100},
    }
}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (TEXT, "12", "12"),
        ({"type": "integer"}, "12", 12),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, '"a"', '"a"'),
        ({"type": ["string", "integer"]}, "12", 12),
        ({"type": ["string", "integer"]}, "1.5", "1.5"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "12", "12"),
        ({"oneOf": [{"type": "number"}, {"type": "null"}]}, "null", None),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["string", "integer"]}]}, "12", "12"),
        ({"$ref": "#/$defs/zip"}, "12", "12"),
        ({"$ref": "#/$defs/zip"}, "null", None),
        ({"$ref": "#/$defs/unit"}, "1", "1"),
        ({"enum": [1, "auto"]}, "1", 1),
        ({"const": "7"}, "7", "7"),
        ({"properties": {"a": TEXT}}, '{"a": "b"}', {"a": "b"}),
        ({}, "12", 12),
        ({}, "a", "a"),
    ],
)
def test_text_is_read_as_its_schema_says(schema, text, value):
    read = typed(text, schema, ROOT)
    assert (read, type(read)) == (value, type(value))
    jsonschema.validate(read, {**ROOT, **schema})


def test_a_schema_that_names_itself_comes_to_an_end():
    assert types_of({"$ref": "#/$defs/tree"}, ROOT) == ALL
