"""The schemas of answers in ``/openapi.json`` have every field that the server sends."""

import copy
import json
from typing import Any

import pytest
from tests.plugins.server.test_every_endpoint import CHAT, ROWS, STREAMS

from imported_late import Late

jsonschema = Late("jsonschema")

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALLED = [CHAT["messages"][0], {"role": "assistant", "content": None, "tool_calls": [CALL]}]
CHATS: list[tuple[str, Any]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
    ("/v1/chat/completions", {"messages": CALLED, "tools": [TOOL], "response_format": {"type": "json_object"}}),
    (
        "/v1/messages",
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]},
            ],
            "system": [{"type": "text", "text": "a"}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
        },
    ),
    ("/api/chat", {"messages": [{"role": "tool", "content": "a", "tool_name": "f"}], "tools": [TOOL]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}),
]


@pytest.fixture(scope="module")
def document(server) -> dict[str, Any]:
    return server.client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def closed(document) -> dict[str, Any]:
    """The components, in which an object has no field that its class does not declare."""
    components = copy.deepcopy(document["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return components


def schema_of(document: dict[str, Any], path: str, method: str, media_type: str) -> Any:
    path = path.replace("/v1/models/demo", "/v1/models/{name}")
    return document["paths"][path][method]["responses"]["200"]["content"][media_type].get("schema")


@pytest.mark.parametrize(("asked", "body", "status", "expected"), ROWS, ids=[f"{row[0]}-{row[2]}" for row in ROWS])
def test_an_answer_has_declared_fields(server, document, closed, asked, body, status, expected):
    method, path = asked.split()
    response = server.client.request(method, path, json=body)
    if "json" not in response.headers.get("Content-Type", "") or path == "/openapi.json":
        return
    if body and "response_fields" in body:  # selects fields of fields, by names with a slash
        return
    schema = {"$ref": "#/components/schemas/Error"}
    if status == 200:
        schema = schema_of(document, path.partition("?")[0], method.lower(), "application/json")
    jsonschema.validate(response.json(), {**schema, "components": closed})


@pytest.mark.parametrize(("path", "body", "first", "last"), STREAMS, ids=[row[0] for row in STREAMS])
def test_a_stream_has_declared_fields(server, document, closed, path, body, first, last):
    media_type = "application/x-ndjson" if path.startswith("/api/") else "text/event-stream"
    schema = schema_of(document, path, "post", media_type)
    response = server.client.post(path, json={**body, "stream": True})
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line and line[:6] != "event:"]
    for line in lines:
        if line != "[DONE]":
            part = json.loads(line)
            if path == "/completion" and part["stop"]:
                schema = {"$ref": "#/components/schemas/NativeCompletion"}
            jsonschema.validate(part, {**schema, "components": closed})


@pytest.mark.parametrize(("path", "body"), CHATS)
def test_nested_objects_of_bodies_have_declared_fields(document, closed, path, body):
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.validate(body, {**schema, "components": closed})
    messages = "input" if "input" in body else "messages"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**body, messages: [{"role": 1}]}, {**schema, "components": document["components"]})
