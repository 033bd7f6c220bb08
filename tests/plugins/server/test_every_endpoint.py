"""An example of every endpoint and each of its paths: the status, the answer, and its schema in ``/openapi.json``."""

import copy
import json
from typing import Any

import pytest

from imported_late import Late
from pumice_server.application import operations

jsonschema = Late("jsonschema")

TEXT = "Once upon a time"
CHAT = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 4}

COMPLETION = {"stop": True, "model": "demo", "tokens_predicted": 4, "truncated": False, "stop_type": "limit"}
COMPLETION |= {"index": int, "content": str, "tokens": [int], "id_slot": int, "tokens_evaluated": int, "prompt": str}
COMPLETION |= {"generation_settings": dict, "has_new_line": bool, "stopping_word": "", "tokens_cached": int}
COMPLETION |= {"timings": dict}
CHOICE = {"index": 0, "logprobs": None, "finish_reason": "length"}
COMPLETIONS = {"object": "text_completion", "choices": [CHOICE], "timings": dict}
CHATTED = {"object": "chat.completion", "choices": [CHOICE | {"message": {"role": "assistant"}}], "timings": dict}
RESPONSE = {"object": "response", "model": "demo", "status": "incomplete", "usage": {"output_tokens": 4}}
RESPONSE |= {"output": [{"type": "message", "content": [{"type": "output_text", "annotations": []}]}]}
MESSAGES = {"type": "message", "role": "assistant", "model": "demo", "content": [{"type": "text"}]}
MESSAGES |= {"stop_reason": "max_tokens", "stop_sequence": None, "usage": {"output_tokens": 4}}
EMBEDDINGS = {"object": "list", "model": "demo", "data": [{"object": "embedding", "index": 0, "embedding": [float]}]}
META = {"vocab_type": 2, "n_vocab": 2048, "n_ctx_train": 512, "n_embd": 256, "n_params": 5246208, "ftype": "Q8_0"}
DETAILS = {"format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "5.25M"}
LISTED = {"name": "demo", "model": "demo", "details": DETAILS | {"quantization_level": "Q8_0"}}
FACTS = {"general.architecture": "llama", "general.parameter_count": int, "llama.context_length": 512}
SHOWN = {"details": DETAILS, "model_info": FACTS, "capabilities": ["completion"], "modified_at": str}
OLLAMA = {"model": "demo", "done": True, "done_reason": "length", "prompt_eval_count": int, "eval_count": 4}
OLLAMA |= dict.fromkeys(("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"), int)
FEW = {"options": {"num_predict": 4}, "stream": False}
PROPS = {"default_generation_settings": {"params": dict, "n_ctx": int}, "model_alias": "demo", "model_ftype": "Q8_0"}
PROPS |= {"modalities": {"vision": False, "video": False, "audio": False}, "is_sleeping": False, "ui": True}
PROPS |= {"chat_template_caps": {"supports_tools": bool, "supports_system_role": bool}, "cors_proxy_enabled": False}
PROPS |= dict.fromkeys(("model_path", "chat_template", "bos_token", "eos_token", "build_info"), str)
PROPS |= {"total_slots": int, "endpoint_slots": bool, "endpoint_metrics": bool}
ERROR = {"error": {"message": str, "type": str, "code": int}}

NATIVE = {"prompt": TEXT, "n_predict": 4, "return_tokens": True, "n_probs": 2}
NATIVELY = {**COMPLETION, "completion_probabilities": [{"id": int, "logprob": float, "top_logprobs": [dict]}]}
OPENAI = {"prompt": TEXT, "max_tokens": 4}
RESPOND = {"input": TEXT, "max_output_tokens": 4}
EMBED = {"input": [TEXT], "content": TEXT}
BATCH = {"input_file_id": "a", "endpoint": "/v1/embeddings"}
RANK = {"query": "a", "documents": ["b", "c"]}

ROWS: list[tuple[str, Any, int, Any]] = [
    *((f"GET {path}", None, 200, {"status": "ok"}) for path in ("/health", "/v1/health", "/livez", "/readyz")),
    ("GET /", None, 200, str),
    ("GET /openapi.json", None, 200, {"openapi": "3.1.0", "paths": dict}),
    ("GET /docs", None, 200, str),
    ("GET /metrics", None, 200, str),
    ("GET /props", None, 200, PROPS),
    ("POST /props", {}, 501, ERROR),
    ("GET /tools", None, 501, ERROR),
    ("GET /v1/stream?conv_id=none", None, 404, ERROR),
    ("GET /v1/stream/none", None, 404, ERROR),
    ("DELETE /v1/stream?conv_id=none", None, 204, None),
    ("DELETE /v1/stream/none", None, 204, None),
    ("POST /v1/streams/lookup", {"conversation_ids": ["none"]}, 200, []),
    ("POST /tools", {"tool": "echo"}, 501, ERROR),
    *(
        (f"GET {path}", None, 200, {"object": "list", "data": [{"meta": META}], "models": [LISTED]})
        for path in ("/models", "/v1/models")
    ),
    ("GET /v1/models/demo", None, 200, {"object": "model", "meta": META}),
    *((f"POST {path}", NATIVE, 200, NATIVELY) for path in ("/completion", "/completions")),
    ("POST /completion", {**NATIVE, "prompt": [TEXT, [5, 6]]}, 200, [COMPLETION]),
    ("POST /completion", {**NATIVE, "prompt": {"prompt_string": TEXT}}, 200, COMPLETION),
    ("POST /completion", {**NATIVE, "response_fields": ["content", "timings/predicted_n"]}, 200, {"content": str}),
    ("POST /v1/completions", OPENAI, 200, COMPLETIONS),
    *((f"POST {path}", CHAT, 200, CHATTED) for path in ("/chat/completions", "/v1/chat/completions")),
    *(
        (f"POST {path}/input_tokens", CHAT, 200, {"object": "response.input_tokens", "input_tokens": int})
        for path in ("/chat/completions", "/v1/chat/completions")
    ),
    *((f"POST {path}", RESPOND, 200, RESPONSE) for path in ("/responses", "/v1/responses")),
    *((f"POST {path}/input_tokens", RESPOND, 200, {"input_tokens": int}) for path in ("/responses", "/v1/responses")),
    ("GET /v1/responses/absent", None, 404, ERROR),
    ("DELETE /v1/responses/absent", None, 404, ERROR),
    ("POST /v1/messages", CHAT, 200, MESSAGES),
    ("POST /v1/messages/count_tokens", CHAT, 200, {"input_tokens": int}),
    ("POST /infill", {"input_prefix": "a", "input_suffix": "b"}, 501, ERROR),
    *((f"POST {path}", EMBED, 200, [{"index": 0, "embedding": [[float]]}]) for path in ("/embedding", "/embeddings")),
    ("POST /v1/embeddings", EMBED, 200, EMBEDDINGS),
    ("POST /v1/embeddings", {**EMBED, "encoding_format": "base64"}, 200, {"data": [{"embedding": str}]}),
    *((f"POST {path}", RANK, 501, ERROR) for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")),
    ("POST /tokenize", {"content": TEXT}, 200, {"tokens": [int]}),
    ("POST /tokenize", {"content": TEXT, "with_pieces": True}, 200, {"tokens": [{"id": int, "piece": str}]}),
    ("POST /detokenize", {"tokens": [5, 6]}, 200, {"content": str}),
    ("POST /apply-template", CHAT, 200, {"prompt": str}),
    ("POST /hidden-states", {"input": "a", "layers": [0]}, 501, ERROR),
    ("GET /lora-adapters", None, 200, []),
    ("POST /lora-adapters", [], 200, {"success": True}),
    ("DELETE /lora-adapters?name=a", None, 501, ERROR),
    ("GET /slots", None, 200, [{"speculative": True}]),
    ("POST /slots/0?action=save", {"filename": "a"}, 501, ERROR),
    ("POST /models/load", {"model": "demo"}, 200, {"success": True}),
    ("POST /models/unload", {}, 400, ERROR),
    ("POST /models", {"model": "x/y"}, 403, ERROR),
    ("DELETE /models?model=demo", None, 403, ERROR),
    ("HEAD /models/sse", None, 200, None),
    ("POST /v1/chat/completions/control", {"id": "absent", "action": "reasoning_end"}, 200, {"success": False}),
    *(
        (f"GET /v1/{path}", None, 501, ERROR)
        for path in ("files", "files/a", "files/a/content", "batches", "batches/a")
    ),
    *((f"POST /v1/{path}", BATCH, 501, ERROR) for path in ("files", "batches", "batches/a/cancel")),
    ("DELETE /v1/files/a", None, 501, ERROR),
    *((f"POST {path}", {"input": TEXT}, 400, ERROR) for path in ("/v1/audio/speech", "/audio/speech")),
    ("POST /v1/audio/transcriptions", {}, 400, ERROR),  # no form
    ("POST /audio/transcriptions", {}, 400, ERROR),
    ("POST /v1/audio/translations", {}, 400, ERROR),
    ("POST /extract-text", {"pdf": "JQ=="}, 400, ERROR),  # no PDF
    ("POST /audio/translations", {}, 400, ERROR),
    ("POST /api/chat", {**CHAT, **FEW}, 200, {**OLLAMA, "message": {"role": "assistant"}}),
    ("POST /api/generate", {"prompt": TEXT, **FEW}, 200, {**OLLAMA, "response": str}),
    ("GET /api/tags", None, 200, {"models": [LISTED]}),
    ("GET /api/ps", None, 200, {"models": [{**LISTED, "expires_at": str, "context_length": int, "size_vram": 0}]}),
    ("GET /api/version", None, 200, {"version": str}),
    ("POST /api/show", {"model": "demo"}, 200, SHOWN),
    ("POST /api/embed", {"input": TEXT}, 200, {"embeddings": [[float]], "prompt_eval_count": int}),
    ("POST /api/embeddings", {"prompt": TEXT}, 200, {"embedding": [float]}),
    ("POST /api/pull", {"model": "x/y"}, 403, {"error": str}),
    ("GET /api/blobs/sha256:0", None, 404, {"error": str}),
    ("POST /api/blobs/sha256:0", {}, 403, {"error": str}),
    ("POST /api/push", {}, 501, {"error": str}),
    ("POST /api/create", {"model": "own", "from": "demo", "stream": False}, 200, {"status": "success"}),
    ("POST /api/copy", {"source": "hare", "destination": "own"}, 404, {"error": str}),
    ("DELETE /api/delete", {"model": "own"}, 200, {"status": "success"}),
    ("GET /cors-proxy", None, 501, ERROR),
    ("POST /cors-proxy", {}, 501, ERROR),
]

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
USE = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]
RESULT = [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]
USED = [{"role": "assistant", "content": USE}, {"role": "user", "content": RESULT}]
THEIRS = [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}]
CALLED = [CHAT["messages"][0], {"role": "assistant", "content": None, "tool_calls": [CALL]}]
CHATS: list[tuple[str, Any]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
    ("/v1/chat/completions", {"messages": CALLED, "tools": [TOOL], "response_format": {"type": "json_object"}}),
    ("/v1/messages", {"messages": USED, "system": [{"type": "text", "text": "a"}], "tools": THEIRS}),
    ("/api/chat", {"messages": [{"role": "tool", "content": "a", "tool_name": "f"}], "tools": [TOOL]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}),
]

CHUNK = {"object": "chat.completion.chunk"}
FIRST = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
USAGE = {"stream_options": {"include_usage": True}}
STREAMS: list[tuple[str, Any, Any, Any]] = [  # path, body, the first part, the last
    ("/completion", NATIVE, {"index": 0, "content": str, "tokens": [int], "stop": False}, COMPLETION | {"tokens": []}),
    ("/v1/completions", OPENAI, {"choices": [{"finish_reason": None}]}, {"choices": [CHOICE], "timings": dict}),
    ("/v1/chat/completions", CHAT, CHUNK, CHUNK | {"choices": [{"finish_reason": "length"}], "timings": dict}),
    ("/v1/chat/completions", CHAT | USAGE, CHUNK | {"choices": [FIRST]}, CHUNK | {"choices": [], "usage": dict}),
    ("/v1/responses", RESPOND, {"type": "response.created", "sequence_number": 0}, {"type": "response.incomplete"}),
    ("/v1/messages", CHAT, {"type": "message_start", "message": {"type": "message"}}, {"type": "message_stop"}),
    ("/api/chat", CHAT | {"options": {"num_predict": 4}}, {"done": False}, OLLAMA),
    ("/api/generate", {"prompt": TEXT, "options": {"num_predict": 4}}, {"response": str, "done": False}, OLLAMA),
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


def validate(value: Any, schema: Any, components: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": components}).validate(value)


def schema_of(document: dict[str, Any], path: str, method: str, media_type: str) -> Any:
    path = path.partition("?")[0].replace("/v1/models/demo", "/v1/models/{name}")
    return document["paths"][path][method.lower()]["responses"]["200"]["content"][media_type].get("schema")


def check(found: Any, expected: Any, where: str = "") -> None:
    """``expected``: a type, a value, or what a list or an object has at least."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in found, f"{where}: no {name}: {found}"
            check(found[name], value, f"{where}.{name}")
    elif isinstance(expected, list) and expected:
        assert isinstance(found, list), where
        assert found, where
        for each in found:
            check(each, expected[0], f"{where}[]")
    elif isinstance(expected, (type, tuple)):
        assert isinstance(found, expected), f"{where}: {found!r}"
    else:
        assert found == expected, where


@pytest.mark.parametrize(("asked", "body", "status", "expected"), ROWS, ids=[f"{row[0]}-{row[2]}" for row in ROWS])
def test_an_example(server, document, closed, asked, body, status, expected):
    """Its answer has what is expected, and every field that it has is declared in ``/openapi.json``."""
    method, path = asked.split()
    response = server.client.request(method, path, json=body)
    assert response.status_code == status, response.text
    if expected is not None:
        check(response.text if expected is str else response.json(), expected, asked)
    is_json = "json" in response.headers.get("Content-Type", "") and path != "/openapi.json"
    if is_json and "response_fields" not in (body or {}):  # which selects fields of fields, by names with a slash
        declared = schema_of(document, path, method, "application/json") if status == 200 else None
        validate(response.json(), declared or {"$ref": "#/components/schemas/Error"}, closed)


@pytest.mark.parametrize(("path", "body", "first", "last"), STREAMS, ids=[row[0] for row in STREAMS])
def test_a_stream(server, document, closed, path, body, first, last):
    response = server.client.post(path, json={**body, "stream": True})
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line and line[:6] != "event:"]
    done = lines.pop() if lines[-1] == "[DONE]" else ""
    assert bool(done) == path.endswith("completions")
    parts = [json.loads(line) for line in lines]
    check(parts[0], first, path)
    check(parts[-1], last, path)
    media_type = "application/x-ndjson" if path.startswith("/api/") else "text/event-stream"
    chunk, whole = schema_of(document, path, "post", media_type), {"$ref": "#/components/schemas/NativeCompletion"}
    for part in parts:
        validate(part, whole if path == "/completion" and part["stop"] else chunk, closed)


def test_the_schemas_accept_what_the_server_accepts(document):
    checked = 0
    for asked, body, status, _ in ROWS:
        method, path = asked.partition("?")[0].split()
        operation = document["paths"].get(path, {}).get(method.lower(), {})
        if status == 200 and body is not None and "requestBody" in operation:
            validate(body, operation["requestBody"]["content"]["application/json"]["schema"], document["components"])
            checked += 1
    assert checked > 20


@pytest.mark.parametrize(("path", "body"), CHATS)
def test_bodies_have_declared_fields(document, closed, path, body):
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    validate(body, schema, closed)


def test_every_path_has_an_example():
    asked = [row[0].partition("?")[0].replace("HEAD", "GET") for row in ROWS]
    for operation in operations():
        for path in operation.paths:
            wanted = f"{operation.method} {path.partition('{')[0]}"
            assert any(each == wanted or ("{" in path and each.startswith(wanted)) for each in asked), wanted
