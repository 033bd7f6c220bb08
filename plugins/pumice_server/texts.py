"""llama-server's endpoints for text: tokens of it, text of them, and the prompt that a template makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pumice_server.answers import JSON, json_response, make_answer, to_json
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import TokenBytes
from pumice_server.limits import MAX_SPELT, shown
from pumice_server.models import service_of
from pumice_server.openai_chat import prompt_of
from pumice_server.service import Service
from pumice_server.work import aside

_TOKENS = 1 << 12  # of an answer that are told at once, so that a long one takes little memory


async def tokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    special = body.get("add_special", bool, False), body.get("parse_special", bool, True)
    spell = service.token_bytes if body.get("with_pieces", bool, False) else None
    text = body.get("content", str, "")
    if len(text) > MAX_SPELT or len(text.encode()) > MAX_SPELT:
        raise bad_request(f"content: at most {MAX_SPELT} bytes of text, not {len(text)} characters: {shown(text)}")
    tokens = await service.tokenize(text, *special)

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"tokens":['
        for begin in range(0, len(tokens), _TOKENS):
            told = await aside(_told, tokens[begin : begin + _TOKENS], spell, size=len(tokens))
            yield b"," + told if begin else told
        yield b"]}"

    return StreamingResponse(parts(), media_type=JSON)


def _told(tokens: Sequence[int], spell: TokenBytes | None) -> bytes:
    """Tokens of an answer, with the text of each where that is asked for, without the brackets around them."""
    told = tokens if spell is None else [{"id": token, "piece": _piece(spell(token))} for token in tokens]
    return to_json(told)[1:-1]


async def detokenize(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    tokens = body.get("tokens", list, [])
    await body.aside(_check_ids, tokens, service)
    decoder = service.model.tokenizer.decoder()

    def spelt(begin: int) -> bytes:
        """The text of some tokens, as JSON without the marks around it."""
        return to_json("".join(map(decoder.push, tokens[begin : begin + _TOKENS])))[1:-1]

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"content":"'
        for begin in range(0, len(tokens), _TOKENS):
            yield await body.aside(spelt, begin)
        yield to_json(decoder.flush())[1:] + b"}"

    return StreamingResponse(parts(), media_type=JSON)


def _check_ids(tokens: Sequence[Any], service: Service) -> None:
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < service.model.n_vocab:
            raise bad_request(f"tokens: {shown(token)} is no token id of this model")


async def apply_template(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    prompt = await prompt_of(body, service)
    return await make_answer(lambda: {"prompt": prompt}, len(prompt))


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
