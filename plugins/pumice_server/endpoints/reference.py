"""The reference of endpoints and of the fields of their bodies: rows of tables, and the page ``/docs``."""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from types import UnionType
from typing import Any, NamedTuple, get_args

import msgspec

from pumice_server.answer_types import Error
from pumice_server.endpoints.openapi import Operation, titles
from pumice_server.field_types import REASON
from pumice_server.http.bodies import Sampling
from pumice_server.http.schemas import Schema, alternatives, descriptions, schema_of, structs_of, told

Kind = type[msgspec.Struct]


class FieldRow(NamedTuple):
    """A row of the table of a body's fields."""

    name: str
    type: str
    default: str
    description: str


def kinds_of(operations: Iterable[Operation]) -> list[Kind]:
    """Return the classes of bodies and answers, with their bases and the classes of their fields."""
    kinds: dict[Kind, None] = {}
    for operation in operations:
        for declared in (operation.body, operation.answer, operation.part):
            for kind in structs_of(declared) if declared is not None else ():
                kinds |= dict.fromkeys(base for base in kind.__mro__ if _has_fields(base))
    kinds |= dict.fromkeys(structs_of(Error))
    return list(kinds)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) and bool(kind.__struct_fields__)


def base_of(kind: Kind) -> Kind | None:
    """Return the class whose fields a class has too, or None."""
    base = kind.__base__
    return base if base is not None and _has_fields(base) else None


def summary_of(kind: Kind) -> str:
    """Return the docstring of a class as one line."""
    doc = kind.__doc__ if kind is not Sampling else "Parameters of the sampler chain."
    return " ".join(inspect.cleandoc(doc or "").split())


def rows(kind: Kind) -> list[FieldRow]:
    """Return the fields that a class adds to those of its base, or that differ from them."""
    base = base_of(kind)
    schema = schema_of(kind)
    inherited = schema_of(base)["properties"] if base else {}
    texts = descriptions(kind)
    required = schema.get("required", ())
    return [
        FieldRow(name, type_text(field), _default(field, name in required), texts.get(name, ""))
        for name, field in schema["properties"].items()
        if inherited.get(name) != field
    ]


def _default(field: Schema, required: bool) -> str:
    default = field.get("default")
    return "required" if required else "" if default in (None, {}, []) else msgspec.json.encode(default).decode()


def type_text(schema: Schema) -> str:
    """Return a type with its bounds, as readers need it: ``integer, 1 to 16``."""
    return " or ".join(map(_type_text, alternatives(schema)))


def _type_text(schema: Schema) -> str:
    if REASON in schema or not schema.keys() & {"type", "enum"}:
        return "any value"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    match schema["type"]:
        case "string":
            return f"text, up to {schema['maxLength']} characters" if "maxLength" in schema else "text"
        case "integer" | "number":
            bounds = [told(schema[name]) for name in ("minimum", "maximum") if name in schema]
            return f"{schema['type']}, {' to '.join(bounds)}" if bounds else str(schema["type"])
        case "array":
            items = schema.get("items")
            of = f" of ({type_text(items)})" if items else ""
            return f"list of up to {schema['maxItems']} items{of}" if "maxItems" in schema else f"list{of}"
        case "object":
            if "properties" in schema:
                return str(schema["title"])
            return f"object of up to {schema['maxProperties']} keys" if "maxProperties" in schema else "object"
    return "true or false"


def title_of(kind: Any) -> str:
    """Return the name of a kind of body or answer: of its class, or of the class of its items."""
    name = next(structs_of(kind)).__name__
    alternatives = get_args(kind) if isinstance(kind, UnionType) else [kind]
    others = [title_of(alternative) for alternative in alternatives[1:]]
    return " or ".join([name if inspect.isclass(alternatives[0]) else f"list of {name}", *others])


# --- The page

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
th, td { padding: 0.3rem 0.6rem 0.3rem 0; text-align: left; vertical-align: top; }
code { font: 0.9em ui-monospace, monospace; }
summary { cursor: pointer; padding: 0.2rem 0; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of the page, which has no scripts and loads nothing."""


def page(operations: Sequence[Operation]) -> str:
    """Return the page ``/docs`` as HTML."""
    parts = [
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Endpoints of Pumice</title><style>{_STYLE}</style>",
        "<h1>Endpoints</h1><p><a href=openapi.json>openapi.json</a> describes them for programs.</p>",
    ]
    for protocol in titles(operations):
        parts.append(f"<h2>{protocol}</h2>")
        parts += [_endpoint(operation) for operation in operations if operation.protocol == protocol]
    parts.append(
        "<h2>Fields of bodies and answers</h2><p>In bodies, unknown fields are ignored and null counts as absent.</p>"
    )
    return "".join([*parts, *map(_fields, kinds_of(operations)), "</html>\n"])


def _endpoint(operation: Operation) -> str:
    paths = ", ".join(f"<code>{escape(path)}</code>" for path in operation.paths)
    lines = [f"<li><code>?{escape(name)}=</code> {_text(text)}</li>" for name, text in operation.query.items()]
    if operation.body is not None:
        lines.append(f"<li>Body: {_link(operation.body)}</li>")
    if operation.answer is bytes:
        lines.append("<li>Answer: a file</li>")
    elif operation.answer is not None:
        lines.append(f"<li>Answer: {_link(operation.answer)}</li>")
    if operation.part is not None:
        lines.append(f"<li>Parts of its stream: {_link(operation.part)}</li>")
    lines.append(f"<li>Scope of the key: {operation.scope or 'none'}</li>")
    summary = f"{operation.method} {paths}: {_text(operation.summary)}"
    return f"<details><summary>{summary}</summary><ul>{''.join(lines)}</ul></details>"


def _link(kind: Any) -> str:
    return f"<a href='#{next(structs_of(kind)).__name__}'>{title_of(kind)}</a>"


def _fields(kind: Kind) -> str:
    base = base_of(kind)
    also = f" Also the fields of <a href='#{base.__name__}'>{base.__name__}</a>." if base else ""
    head = f"<h3 id={kind.__name__}>{kind.__name__}</h3><p>{_text(summary_of(kind))}{also}</p>"
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in rows(kind))
    return f"{head}<table><tr><th>field<th>type<th>default<th>meaning</tr>{body}</table>" if body else head


def _cells(row: FieldRow) -> Iterator[str]:
    yield f"<code>{escape(row.name)}</code>"
    yield from map(_text, (row.type, row.default, row.description))


def _text(text: str) -> str:
    """Return text as HTML, with code between backticks."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))
