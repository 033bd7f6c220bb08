"""llama-server's endpoints for text: tokens of it, text of them, and the prompt that a template makes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import json_response
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.models import service_of
from pumice_server.openai_chat import prompt_of

MAX_TOKENS = 1 << 20  # of one call of detokenize


async def tokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    special = body.get("add_special", bool, False), body.get("parse_special", bool, True)
    tokens = await service.tokenize(body.get("content", str, ""), *special)
    if body.get("with_pieces", bool, False):
        return json_response({"tokens": [{"id": each, "piece": _piece(service.token_bytes(each))} for each in tokens]})
    return json_response({"tokens": tokens})


async def detokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    tokens = body.get("tokens", list, [])
    if len(tokens) > MAX_TOKENS:
        raise bad_request(f"tokens: at most {MAX_TOKENS}")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < service.model.n_vocab:
            raise bad_request(f"tokens: {token!r:.60} is no token id of this model")
    return json_response({"content": service.model.detokenize(tokens)})


async def apply_template(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    return json_response({"prompt": await prompt_of(body, service)})


async def input_tokens(request: Request) -> Response:
    """How many tokens the prompt of a chat has."""
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    tokens = await service.tokenize(await prompt_of(body, service))
    return json_response({"object": "response.input_tokens", "input_tokens": len(tokens)})


def _piece(data: bytes) -> Any:
    """Text, or bytes where they are only a part of it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
