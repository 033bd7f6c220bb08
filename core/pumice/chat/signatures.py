"""JSON schemas of the arguments of Python functions, and checks of the arguments of calls.

msgspec makes and checks them. pydantic does for annotations that are made with it, and for types that msgspec lacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

Checked = tuple[dict[str, Any], Callable[[Mapping[str, Any]], dict[str, Any]]]
"""A schema, and a function that returns arguments converted to the annotated types. It raises ValueError."""

_NOT_HERE = " - at `$"  # before the path in an error of msgspec


def read_signature(function: Callable[..., Any], name: str, descriptions: Mapping[str, str]) -> Checked:
    """Return the schema and the check of a function's arguments.

    Args:
        function: Function whose parameters can be given by name.
        name: Name of the tool.
        descriptions: Descriptions of parameters by name.

    Raises:
        Exception: An annotation cannot be evaluated, or has no JSON schema.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = {key: (hints.get(key, Any), item) for key, item in inspect.signature(function).parameters.items()}
    if any(map(_is_foreign, hints.values())):
        return _by_pydantic(name, parameters, descriptions)
    try:
        return _by_msgspec(name, parameters, descriptions)
    except TypeError:
        if find_spec("pydantic") is None:
            raise
        return _by_pydantic(name, parameters, descriptions)


def _is_foreign(hint: Any) -> bool:
    """Return True for an annotation with metadata that msgspec does not read, such as ``pydantic.Field``."""
    metadata = getattr(hint, "__metadata__", ())
    if any(type(item).__module__.partition(".")[0] in ("pydantic", "annotated_types") for item in metadata):
        return True
    return any(map(_is_foreign, get_args(hint)))


def _attribute_names(parameters: Iterable[str]) -> dict[str, str]:
    """Return names of attributes for parameters, whose own may be reserved, such as ``schema``."""
    return {key: f"argument_{number}" for number, key in enumerate(parameters)}


def _by_msgspec(
    name: str, parameters: Mapping[str, tuple[Any, inspect.Parameter]], descriptions: Mapping[str, str]
) -> Checked:
    fields = []
    attributes = _attribute_names(parameters)
    for key, (hint, parameter) in parameters.items():
        described = Annotated[hint, msgspec.Meta(description=descriptions[key])] if descriptions.get(key) else hint
        default = (
            {} if parameter.default is parameter.empty else {"default_factory": partial(_itself, parameter.default)}
        )
        fields.append((attributes[key], described, msgspec.field(name=key, **default)))
    struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    (root,), definitions = msgspec.json.schema_components(
        [struct], schema_hook=_schema_of_path, ref_template="#/$defs/{name}"
    )
    schema = _without_titles(definitions.pop(root["$ref"].rpartition("/")[2]))
    for key, (_, parameter) in parameters.items():
        if parameter.default is not parameter.empty:
            schema["properties"][key]["default"] = msgspec.to_builtins(parameter.default, str_keys=True, enc_hook=str)
    if definitions:
        schema["$defs"] = {key: _without_titles(definition) for key, definition in definitions.items()}

    def check(arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            read = msgspec.convert(dict(arguments), struct, strict=False, dec_hook=_path)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(_NOT_HERE)
            where = path.strip(".`")
            raise ValueError(f"{where}: {problem}" if where else problem) from None
        return {key: getattr(read, attribute) for key, attribute in attributes.items()}

    return schema, check


def _itself(value: Any) -> Any:
    return value


def _schema_of_path(kind: type) -> dict[str, Any]:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _path(kind: type, value: object) -> object:
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"Expected a {kind.__name__}")


def _by_pydantic(
    name: str, parameters: Mapping[str, tuple[Any, inspect.Parameter]], descriptions: Mapping[str, str]
) -> Checked:
    from pydantic import ConfigDict, Field, ValidationError, create_model

    fields: dict[str, Any] = {}
    attributes = _attribute_names(parameters)
    for key, (hint, parameter) in parameters.items():
        options: dict[str, Any] = {"alias": key}
        if parameter.default is not parameter.empty:
            options["default"] = parameter.default
        if description := descriptions.get(key):
            options["description"] = description
        fields[attributes[key]] = (hint, Field(**options))
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    def check(arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            read = model.model_validate(arguments)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, item['loc'])) or name}: {item['msg']}" for item in error.errors()[:10]]
            raise ValueError("; ".join(problems)) from None
        return {key: getattr(read, attribute) for key, attribute in attributes.items()}

    return _without_titles(model.model_json_schema()), check


def _without_titles(schema: Any) -> Any:
    """Return a schema without titles of classes, which tell the model nothing, and with the type of texts' choices."""
    plain = {key: value for key, value in schema.items() if key != "title"}
    if "type" not in plain and all(isinstance(value, str) for value in plain.get("enum", [0])):
        plain = {"type": "string", **plain}
    for key in ("properties", "$defs"):
        if key in plain:
            plain[key] = {name: _without_titles(part) for name, part in plain[key].items()}
    return plain
