"""The description of all endpoints in OpenAPI's format, derived from their docstrings and bodies: ``/openapi.json``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pumice
from pumice.plugin.unstable import Endpoint
from pumice_server.answer_types import Error
from pumice_server.http.schemas import Schema, documented_schemas

_REFERENCE = "#/components/schemas/{name}"
_QUERY = re.compile(r"``\?(\w+)=``: ([^.]*\.)")


@dataclass(frozen=True)
class Operation:
    """An endpoint as clients see it.

    Attributes:
        protocol: Title of the protocol that the endpoint belongs to.
        method: HTTP method; the first of ``paths`` is the usual one.
        scope: Scope that a key needs, or ``""`` if no key is needed.
        summary: What the endpoint does.
        query: Parameters of the query, with their meanings.
        body: Kind of body, or None.
        answer: Kind of answer, None if it is not JSON or only an error, or bytes for a file.
        part: Kind of a stream's parts, or None.
    """

    protocol: str
    method: str
    paths: Sequence[str]
    scope: str
    summary: str
    query: Mapping[str, str]
    body: Any
    answer: Any = None
    part: Any = None

    @property
    def streams(self) -> bool:
        """True if the answer can come in parts."""
        is_stream = self.answer in (None, bytes) and self.part is not None
        return is_stream or "stream" in getattr(self.body, "__struct_fields__", ())


def describe(protocol: str, endpoint: Endpoint, body: Any, answers: Sequence[Any] = ()) -> Operation:
    """Return the operation of an endpoint, whose docstring has a summary and its parameters: ``?name=``: meaning.

    ``answers``: the kinds of its answer and of its stream's parts, as far as they are known.
    """
    text = " ".join(inspect.cleandoc(endpoint.handler.__doc__ or "").split())
    summary = re.split(r"(?<=\.) ", text)[0].replace("``", "`")
    query = dict(_QUERY.findall(text))
    return Operation(protocol, endpoint.method, endpoint.paths, endpoint.scope, summary, query, body, *answers)


def titles(operations: Iterable[Operation]) -> list[str]:
    """Return the titles of the protocols, in the order of their first endpoints."""
    return list(dict.fromkeys(operation.protocol for operation in operations))


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of OpenAPI 3.1."""
    listed = list(operations)
    kinds = [
        kind for operation in listed for kind in (operation.body, operation.answer, operation.part) if kind is not None
    ]
    schemas, components = documented_schemas([*kinds, Error], _REFERENCE)
    by_kind = {id(kind): schema for kind, schema in zip([*kinds, Error], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in listed:
        for path in operation.paths:
            described = _operation(operation, path, by_kind)
            paths.setdefault(path.replace(":path}", "}"), {})[operation.method.lower()] = described
    key = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pumice", "version": pumice.__version__, "description": "The server of `pumice serve`."},
        "tags": [{"name": name} for name in titles(listed)],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components, "securitySchemes": {"key": key}},
    }


def _operation(operation: Operation, path: str, schemas: Mapping[int, Schema]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/octet-stream": _FILE}
    if operation.answer is not bytes:
        content = {"application/json": _content(operation.answer, schemas)}
    answer: dict[str, Any] = {"description": "The answer.", "content": content}
    if operation.streams:
        media_type = "application/x-ndjson" if operation.protocol == "Ollama" else "text/event-stream"
        answer["content"][media_type] = _content(operation.part, schemas)
    failure = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    parameters = [
        *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in re.findall(r"\{(\w+)", path)),
        *(
            {"name": name, "in": "query", "description": text, "schema": _TEXT}
            for name, text in operation.query.items()
        ),
    ]
    described: dict[str, Any] = {
        "tags": [operation.protocol],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {"200": answer, "default": {"description": "An error.", "content": failure}},
        "security": [{"key": [operation.scope]}] if operation.scope else [],
    }
    if operation.body is not None:
        content = _content(operation.body, schemas)
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described


def _content(kind: Any, schemas: Mapping[int, Schema]) -> dict[str, Any]:
    return {} if kind is None else {"schema": schemas[id(kind)]}


_TEXT = {"type": "string"}
_FILE = {"schema": {"type": "string", "format": "binary"}}
