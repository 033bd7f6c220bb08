"""Request bodies of every protocol: no status 500, errors of one shape, and an unaffected server afterwards."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from fuzz.draw import Draw
from fuzz.growth import chosen
from fuzz.served import Application, tiny_application
from pumice_server.application import operations

_PROTOCOLS = {
    "anthropic": ("messages", "request"),
    "llama_server": ("completion", "embeddings", "infill", "texts"),
    "ollama": ("chat", "embeddings"),
    "openai": (
        "chat",
        "completions",
        "embeddings",
        "prompt_logprobs",
        "response_items",
        "responses",
        "responses_request",
    ),
}
MODULES = (
    *(f"pumice_server.protocols.{name}.{module}" for name, modules in _PROTOCOLS.items() for module in modules),
    *(f"pumice_server.{name}" for name in ("body", "choice", "embedding", "errors", "generation_settings", "options")),
    "pumice_server.models.prompts",
    *("pumice.chat.messages", "pumice.chat.request"),
)
MAX_LEN = 700
RUNS = 150
PATHS = sorted(
    path
    for each in operations()
    for path in each.paths
    if each.method == "POST" and "{" not in path and "unload" not in path
)
_USER = {"role": "user", "content": "ab"}
_CHAT = {"messages": [_USER], "max_tokens": 2}
_WITH_TOOLS = {
    **_CHAT,
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
    ],
    "tool_choice": "auto",
}
_TURNS = {
    "messages": [
        {"role": "system", "content": "s"},
        _USER,
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]},
    ],
    "max_tokens": 1,
}
_ITEMS = {
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}],
    "max_output_tokens": 1,
}
BODIES: tuple[dict[str, Any], ...] = (
    {},
    _CHAT,
    _WITH_TOOLS,
    _TURNS,
    {**_CHAT, "stream": True, "stream_options": {"include_usage": True}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "system": "s", "max_tokens": 1},
    {"prompt": "ab", "max_tokens": 2, "logprobs": 2, "echo": True},
    {"prompt": ["a", [5, 6]], "n_predict": 2, "n_probs": 2, "return_tokens": True},
    {"prompt": {"prompt_string": "a"}, "n_predict": 1, "response_fields": ["content", "timings/predicted_n"]},
    {"input": "ab", "max_output_tokens": 2},
    _ITEMS,
    {"input": ["a", "b"], "content": "a", "encoding_format": "base64"},
    {"query": "a", "documents": ["b", "c"], "top_n": 1},
    {"content": "ab", "with_pieces": True, "tokens": [5, 6]},
    {"model": "tiny", "prompt": "a", "options": {"num_predict": 2}, "stream": False, "keep_alive": "5m"},
    {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "x", "filename": "y"}]},
)
FIELDS = (
    "model", "messages", "prompt", "input", "content", "role", "name", "tools", "tool_choice", "tool_calls",
    "functions", "stream", "stream_options", "n", "best_of", "seed", "stop", "stop_sequences", "temperature", "top_k",
    "top_p", "min_p", "typical_p", "xtc_probability", "mirostat", "dry_multiplier", "dry_sequence_breakers", "samplers",
    "logit_bias", "logprobs", "top_logprobs", "prompt_logprobs", "n_probs", "post_sampling_probs", "max_tokens",
    "max_completion_tokens", "n_predict", "max_output_tokens", "min_tokens", "echo", "suffix", "user", "metadata",
    "store", "previous_response_id", "instructions", "reasoning", "reasoning_effort", "reasoning_format", "thinking",
    "text", "truncation", "include", "response_format", "format", "grammar", "json_schema", "guided_choice", "regex",
    "grammar_lazy", "grammar_triggers", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "parallel_tool_calls", "cache_prompt", "id_slot", "lora", "ignore_eos", "t_max_predict_ms", "timings_per_token",
    "return_progress", "return_tokens", "response_fields", "encoding_format", "dimensions", "embd_normalize", "query",
    "documents", "texts", "top_n", "options", "system", "template", "raw", "context", "images", "keep_alive", "think",
    "tokens", "with_pieces", "add_special", "parse_special", "input_prefix", "input_suffix", "input_extra", "filename",
    "scale", "id", "priority", "timeout",
)  # fmt: skip
TOKENS = (
    *(f'"{field}":'.encode() for field in FIELDS),
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[[",
    b"-1",
    b"1e999",
    b'"\\ud800"',
)


def seeds() -> Iterable[bytes]:
    for number, path in enumerate(PATHS):
        fitting = [index for index, body in enumerate(BODIES) if any(key in body for key in _needed(path))]
        for index in fitting[number % 3 :: 3]:
            yield bytes([number, 1, index, 0, 3, 65, 65, 65])
    yield bytes([PATHS.index("/v1/chat/completions"), 0]) + json.dumps(_CHAT).encode()


def _needed(path: str) -> tuple[str, ...]:
    """Return a field that each endpoint of a kind requires."""
    kinds = {"chat": ("messages",), "messages": ("messages",), "responses": ("input",), "embed": ("input", "prompt")}
    return next((keys for kind, keys in kinds.items() if kind in path), ("prompt", "content", "query", "input_prefix"))


@cache
def _application() -> Application:
    return Application(tiny_application())


def check(data: bytes) -> None:
    draw = Draw(data)
    path = draw.choice(PATHS)
    body = json.dumps(_changed(draw)).encode() if draw.flag() else draw.rest()
    answer = _application()("POST", path, body)
    assert answer.status < 500 or answer.status in (501, 503), (path, body, answer)
    if answer.status >= 400:
        error = answer.json()["error"]
        message = error if isinstance(error, str) else error["message"]
        assert message, (path, body, answer)
        assert "Traceback" not in message
    if chosen(data, 64):
        _still_answers()


def _changed(draw: Draw) -> dict[str, Any]:
    """Return one of the bodies with some fields, at any level, replaced."""
    body: dict[str, Any] = json.loads(json.dumps(draw.choice(BODIES)))
    for _ in range(draw.below(4)):
        inside: Any = body
        while isinstance(inside, dict | list) and inside and draw.flag():
            step: Any = draw.choice(list(inside)) if isinstance(inside, dict) else draw.below(len(inside))
            if not isinstance(inside[step], dict | list):
                break
            inside = inside[step]
        if isinstance(inside, dict):
            inside[draw.choice(FIELDS) if draw.flag() or not inside else draw.choice(list(inside))] = draw.json(2)
        elif isinstance(inside, list):
            inside.append(draw.json(2))
    return body


@cache
def _first_answer() -> Any:
    return _content()


def _content() -> Any:
    body = {"messages": [_USER], "max_tokens": 4, "temperature": 0}
    answer = _application()("POST", "/v1/chat/completions", json.dumps(body).encode())
    assert answer.status == 200, answer
    return answer.json()["choices"]


def _still_answers() -> None:
    assert _first_answer() == _content()
