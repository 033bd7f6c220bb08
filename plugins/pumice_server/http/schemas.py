"""JSON schemas of request bodies: their fields, the descriptions of these, and what is wrong with a value."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from pumice.options import CHAT
from pumice.plugin.unstable import show_value
from pumice_server.field_types import REASON

Schema = Mapping[str, Any]

_NOUNS = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@cache
def schema_of(kind: Any) -> Schema:
    """Return the schema of a kind of body, without references."""
    (schema,), components = msgspec.json.schema_components([kind])
    inlined: Schema = _inlined(schema, components)
    return inlined


def _inlined(value: Any, components: Mapping[str, Schema]) -> Any:
    if isinstance(value, dict):
        if "$ref" in value:
            return _inlined(components[value["$ref"].rpartition("/")[2]], components)
        return {name: _inlined(item, components) for name, item in value.items()}
    return [_inlined(item, components) for item in value] if isinstance(value, (list, tuple)) else value


def documented_schemas(kinds: Sequence[Any], template: str) -> tuple[Sequence[Schema], Mapping[str, Schema]]:
    """Return the schema of each kind, and those of their classes by name, with the descriptions of all fields.

    Args:
        kinds: Kinds of bodies.
        template: Format of a reference to a class, with ``{name}``.
    """
    structs = dict.fromkeys(struct for kind in kinds for struct in structs_of(kind))
    by_name = {struct.__name__: struct for struct in structs}
    # msgspec tells classes of one name apart by their modules
    by_name |= {f"{struct.__module__}.{struct.__qualname__}": struct for struct in structs}
    schemas, components = msgspec.json.schema_components(kinds, ref_template=template)
    for name, schema in components.items():
        for field, text in descriptions(by_name[name]).items():
            schema["properties"][field]["description"] = text
    return schemas, components


def structs_of(declared: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the classes that a kind of body or answer consists of, the outermost first."""
    return _structs(msgspec.inspect.type_info(declared))


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls
        for field in kind.fields:
            yield from _structs(field.type)
    for inner in (getattr(kind, "type", None), getattr(kind, "item_type", None), *getattr(kind, "types", ())):
        if inner is not None:
            yield from _structs(inner)


def descriptions(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the description of each field of a class, by its name in JSON.

    It is the text below the field, the reason of a refusal, or the meaning of the option of that name.
    """
    texts = {name: f"Refused: {reason}." for name, reason in refusals(kind).items()}
    for name, encoded in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        text = _documented(kind).get(name) or (CHAT[name].meaning if name in CHAT else None)
        if text and encoded not in texts:
            texts[encoded] = text
    return texts


@cache
def _documented(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the texts below the fields of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        definition = _definitions(base.__module__).get(base.__name__) if issubclass(base, msgspec.Struct) else None
        for field, text in itertools.pairwise(definition.body if definition else []):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return texts


@cache
def _definitions(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes that stand in the source of a module."""
    source = inspect.getsource(sys.modules[module]) if module != msgspec.Struct.__module__ else ""
    return {
        definition.name: definition for definition in ast.parse(source).body if isinstance(definition, ast.ClassDef)
    }


@cache
def refusals(kind: Any) -> Mapping[str, str]:
    """Return the fields that a kind of body refuses, each with the reason."""
    properties = schema_of(kind).get("properties", {})
    return {name: field[REASON] for name, field in properties.items() if REASON in field}


def alternatives(schema: Schema) -> Sequence[Schema]:
    """Return the alternative types of a value, without null."""
    return [alternative for alternative in schema.get("anyOf", [schema]) if alternative.get("type") != "null"]


# --- What is wrong with a value

_BODY = "the body"


def explain(value: Any, schema: Schema, where: str = _BODY) -> str | None:
    """Return what is wrong with a value, with the field, the value and the bound; None if nothing is found."""
    kinds = alternatives(schema)
    for kind in kinds:
        if _has_type(value, kind):
            return _problem(value, kind, where)
    if value is None and len(kinds) < len(schema.get("anyOf", [schema])):
        return None
    return f"{where} must be {_expected(kinds)}, not {show_value(value)}"


def _has_type(value: Any, schema: Schema) -> bool:
    kind = schema.get("type", "string" if "enum" in schema else "")
    return isinstance(value, _TYPES.get(kind, (object,))) and (not isinstance(value, bool) or kind in ("boolean", ""))


def _expected(kinds: Sequence[Schema]) -> str:
    return " or ".join(map(_noun, kinds))


def _noun(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if schema.get("minItems") and "maxItems" in schema:
        least, most = schema["minItems"], schema["maxItems"]
        return f"a list of {most} items" if least == most else f"a list of {least} to {most} items"
    return _NOUNS[schema["type"]]


def _problem(value: Any, schema: Schema, where: str) -> str | None:
    """Return what is wrong with a value of the right type."""
    if "enum" in schema:
        return None if value in schema["enum"] else f"{where} must be {_noun(schema)}, not {show_value(value)}"
    if isinstance(value, (int, float)):
        return _number_problem(value, schema, where)
    if isinstance(value, str):
        if not value and schema.get("minLength"):
            return f"{where} must not be empty"
        most = schema.get("maxLength", len(value))
        too_long = f"{where}: at most {most} characters, not {len(value)}: {show_value(value)}"
        return too_long if len(value) > most else None
    if isinstance(value, list):
        return _list_problem(value, schema, where)
    return _object_problem(value, schema, where) if isinstance(value, dict) else None  # null, where anything may be


def _number_problem(value: float, schema: Schema, where: str) -> str | None:
    bounds = [schema[name] for name in ("minimum", "maximum") if name in schema]
    if schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return None
    if len(bounds) == 2:
        return f"{where} must be between {told(bounds[0])} and {told(bounds[1])}, not {show_value(value)}"
    return f"{where} must be at {'least' if 'minimum' in schema else 'most'} {told(bounds[0])}, not {show_value(value)}"


def _list_problem(value: Sequence[Any], schema: Schema, where: str) -> str | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if len(value) < least:
        return f"{where} must be {_noun(schema)}, not {show_value(value)}"
    if len(value) > most:
        return f"{where}: at most {most} items, not {len(value)}"
    items = schema.get("prefixItems") or [schema.get("items") or {}] * len(value)
    problems = (explain(item, kind, f"{where}[{i}]") for i, (item, kind) in enumerate(zip(value, items, strict=True)))
    return next(filter(None, problems), None)


def _object_problem(value: Mapping[str, Any], schema: Schema, where: str) -> str | None:
    most = schema.get("maxProperties", len(value))
    if len(value) > most:
        return f"{where}: at most {most} keys, not {len(value)}"
    fields: Mapping[str, Schema] = schema.get("properties", {})
    prefix = "" if where == _BODY else f"{where}."
    for name, kind in fields.items():
        if name in value:
            problem = explain(value[name], kind, prefix + name)
        elif name in schema.get("required", ()):
            problem = f"{prefix}{name} must be {_expected(alternatives(kind))}; it is missing"
        else:
            continue
        if problem:
            return problem
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        keys = schema.get("propertyNames", {})
        problems = (
            explain(key, keys, where) or explain(item, others, f"{where}[{key!r:.60}]") for key, item in value.items()
        )
        return next(filter(None, problems), None)
    return None


def told(number: float) -> str:
    """Return a bound as text."""
    return f"{number:g}" if isinstance(number, float) else f"{number}"
