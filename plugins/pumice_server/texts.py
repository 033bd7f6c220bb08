"""llama-server's endpoints for text: tokens of it, text of them, and the prompt that a template makes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import json_response
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import TokenBytes
from pumice_server.models import service_of
from pumice_server.openai_chat import prompt_of
from pumice_server.service import Service

MAX_TOKENS = 1 << 20  # of one call of detokenize


async def tokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    special = body.get("add_special", bool, False), body.get("parse_special", bool, True)
    with_pieces = body.get("with_pieces", bool, False)
    tokens = await service.tokenize(body.get("content", str, ""), *special)
    return await asyncio.to_thread(_tokens, tokens, service.token_bytes if with_pieces else None)


def _tokens(tokens: Sequence[int], spell: TokenBytes | None) -> Response:
    """The answer, with the text of each token where that is asked for."""
    told = tokens if spell is None else [{"id": token, "piece": _piece(spell(token))} for token in tokens]
    return json_response({"tokens": told})


async def detokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    tokens = body.get("tokens", list, [])
    if len(tokens) > MAX_TOKENS:
        raise bad_request(f"tokens: at most {MAX_TOKENS}")
    return json_response({"content": await asyncio.to_thread(_text, tokens, service)})


def _text(tokens: Sequence[Any], service: Service) -> str:
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < service.model.n_vocab:
            raise bad_request(f"tokens: {token!r:.60} is no token id of this model")
    return service.model.detokenize(tokens)


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
