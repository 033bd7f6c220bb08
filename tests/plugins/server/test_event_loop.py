"""No callback of the event loop takes longer than 10 ms, however large a request is."""

import asyncio
import json
from collections.abc import Iterator

import pytest

import pumice
from loop_monitor import LIMIT, Held, held_at_best, monitored
from pumice.plugin.unstable import ModelSpec
from server_thread import Serving, serving
from waiting import PATIENCE, wait_until

USER = {"role": "user", "content": "Once"}
SCHEMA = {"type": "object", "properties": {f"p{i}": {"type": "string", "description": "a text"} for i in range(10)}}
FUNCTIONS = [{"name": f"f{i}", "description": "does it", "parameters": SCHEMA} for i in range(1000)]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
PAIR = [USER | {"role": role} for role in ("user", "assistant")]
MANY = PAIR * 5000
BLOCKS = [{"role": each["role"], "content": [{"type": "text", "text": "Once"}] * 4} for each in PAIR] * 5000
ITEMS = [
    {"type": "message", "role": each["role"], "content": [{"type": "input_text", "text": "a"}] * 4} for each in PAIR
] * 5000
LONG = "word and " * 240_000  # 2 MB
FEW = {"max_tokens": 1, "max_output_tokens": 1, "n_predict": 1, "options": {"num_predict": 1}, "stream": False}
LOGPROBS = {"logprobs": 20, "prompt_logprobs": 20}
LARGE = {
    "a long chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
    "many messages": ("/v1/chat/completions", {"messages": MANY}),
    "many parts": ("/v1/chat/completions", {"messages": BLOCKS}),
    "tools": ("/v1/chat/completions", {"messages": [USER], "tools": TOOLS}),
    "another key": ("/v1/chat/completions", {"messages": [USER], "other": [[]] * 600_000}),
    "biases": ("/completion", {"prompt": "Once", "logit_bias": {f"word {i}": 1 for i in range(1024)}}),
    "items": ("/v1/responses", {"input": ITEMS, "tools": [{"type": "function", **each} for each in FUNCTIONS]}),
    "tools elsewhere": ("/v1/responses", {"input": "Once", "tools": [{"type": "web_search"}] * 1024}),
    "blocks": ("/v1/messages", {"messages": BLOCKS, "tools": [{"name": each["name"]} for each in FUNCTIONS]}),
    "counted blocks": ("/v1/messages/count_tokens", {"messages": BLOCKS}),
    "Ollama's messages": ("/api/chat", {"messages": MANY, "tools": TOOLS}),
    "a raw prompt": ("/api/generate", {"prompt": LONG, "raw": True}),
    "a long prompt": ("/v1/completions", {"prompt": LONG}),
    "ids": ("/v1/completions", {"prompt": [5] * (1 << 20)}),
    "lists of ids": ("/v1/completions", {"prompt": [[5] * 400] * 60}),
    "a repeated prompt": ("/v1/completions", {"prompt": [5] * 500, "echo": True, **LOGPROBS}),
    "completions": ("/completion", {"prompt": "Once", "n": 8, "n_predict": 40, "n_probs": 100, "ignore_eos": True}),
    "texts and ids": ("/completion", {"prompt": ["word and", 5] * 50_000}),
    "prompts": ("/completion", {"prompt": ["word and " * 40] * 64}),
    "texts to embed": ("/v1/embeddings", {"input": ["a"] * 2048}),
    "base64": ("/v1/embeddings", {"input": ["a"] * 2048, "encoding_format": "base64"}),
    "ids to embed": ("/embedding", {"content": [[5] * 100] * 30}),
    "a text that is cut": ("/api/embed", {"input": LONG}),
    "a text": ("/tokenize", {"content": LONG[: 1 << 19], "with_pieces": True}),
    "tokens": ("/detokenize", {"tokens": [500] * (1 << 18)}),
    "a template": ("/apply-template", {"messages": [{"role": "user", "content": "word and " * 7000}]}),
}


@pytest.fixture(scope="module")
def process(tmp_path_factory) -> Iterator[Serving]:
    """A server whose model has a process of its own, as that of ``pumice serve``."""
    chats = tmp_path_factory.mktemp("chats") / "chats.db"
    spec = ModelSpec(["demo"], str(pumice.demo_model_path()), {"config": {"chat_template": "chatml"}})
    with serving(spec, conversations=chats, batches=tmp_path_factory.mktemp("batches")) as server:
        for path in {path for path, _ in LARGE.values()}:  # what is imported or compiled once
            small = {"messages": [USER], "prompt": "Once", "input": "Once", "content": "Once", "tokens": [5]}
            assert server.client.post(path, json=small | FEW | {"logit_bias": {"a": 1}}).status_code in (200, 400)
        yield server


def longest(server, method: str, path: str, body: bytes, kind: str = "application/json") -> tuple[int, list[Held]]:
    """The status, and what held the loop, at best."""
    statuses = []

    def ask() -> None:
        answer = server.client.request(method, path, content=body, headers={"Content-Type": kind})
        statuses.append(answer.status_code)
        # An answer comes before the callback that sent it has ended.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), server.models.loop).result(PATIENCE)

    held = held_at_best(ask)
    return statuses[-1], held


@pytest.mark.parametrize("name", LARGE)
def test_large_bodies(process, name):
    path, body = LARGE[name]
    status, held = longest(process, "POST", path, json.dumps(FEW | body).encode())
    assert status in (200, 400, 429)
    assert held == []


@pytest.mark.parametrize(
    ("path", "field", "content"),
    [
        ("/v1/audio/transcriptions", "max_tokens", b"1_" * (12 << 20) + b"1"),
        ("/v1/files", "purpose", b"\xff" * (24 << 20)),
    ],
)
def test_large_fields_of_a_form(process, path, field, content):
    fields = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value
        for name, value in ((field, content), ("file", b"RIFF0000WAVE"))
    ]
    body = b"--x\r\n" + b"\r\n--x\r\n".join(fields) + b"\r\n--x--"
    assert longest(process, "POST", path, body, "multipart/form-data; boundary=x") == (400, [])


def test_conversations(process):
    body = json.dumps({"text": [LONG]}).encode()
    for path in ("/conversations/a", "/conversations/a/messages/m"):
        assert longest(process, "PUT", path, body) == (200, [])
    for path in ("/conversations", "/conversations/a/messages"):
        assert longest(process, "GET", path, b"") == (200, [])


@pytest.mark.parametrize("path", ["/", "/props", "/metrics", "/v1/models", "/slots", "/page/main.js", "/api/tags"])
def test_requests_that_do_not_block_the_loop(process, path):
    assert longest(process, "GET", path, b"") == (200, [])


def test_calls_that_block_the_loop_are_detected(process, monkeypatch):
    """The monitor itself: a text that is tokenized on the loop is found."""
    from pumice_server import work

    def held_by_tokenizing() -> bool:
        """False where a busy server refused, or where its answer is here before the callback that sent it has ended."""
        process.client.post("/tokenize", json={"content": LONG[: 1 << 19]})
        return bool(held)

    monkeypatch.setattr(work, "SMALL", 1 << 30)
    with monitored() as held:
        wait_until(held_by_tokenizing)
    assert max(each.seconds for each in held) > LIMIT
    assert "run_asgi" in held[0].what
