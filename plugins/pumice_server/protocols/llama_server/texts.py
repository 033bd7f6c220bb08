"""llama-server's endpoints for tokens of a text, text of tokens, and prompts of a chat template."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pumice.plugin.unstable import show_value
from pumice_server.interface import (
    JSON,
    ChatPromptBody,
    Service,
    TokenBytes,
    Whole,
    aside,
    bad_request,
    make_answer,
    prompt_of,
    service_of,
    to_json,
)
from pumice_server.limits import MAX_SPELT
from pumice_server.protocols.llama_server.answer_types import RenderedPrompt, TextOfTokens, TokenList
from pumice_server.protocols.llama_server.bodies import DetokenizeBody, TokenizeBody

_TOKENS = 1 << 12  # tokens encoded at once, so that long answers take little memory


async def tokenize(request: Request, body: TokenizeBody) -> Annotated[Response, TokenList]:
    """Return the tokens of a text."""
    service = await service_of(request, body.model)
    spell = service.token_bytes if body.with_pieces else None
    text = body.content
    if len(text) > MAX_SPELT or len(text.encode()) > MAX_SPELT:
        raise bad_request(f"content: at most {MAX_SPELT} bytes of text, not {len(text)} characters: {show_value(text)}")
    tokens = await service.tokenize(text, body.add_special, body.parse_special)

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"tokens":['
        for begin in range(0, len(tokens), _TOKENS):
            chunk = await aside(_encode, tokens[begin : begin + _TOKENS], spell, size=len(tokens))
            yield b"," + chunk if begin else chunk
        yield b"]}"

    return StreamingResponse(parts(), media_type=JSON)


def _encode(tokens: Sequence[int], spell: TokenBytes | None) -> bytes:
    """Encode tokens as JSON, with the text of each if ``spell`` is given, without the outer brackets."""
    entries = tokens if spell is None else [{"id": token, "piece": _piece(spell(token))} for token in tokens]
    return to_json(entries)[1:-1]


async def detokenize(request: Request, body: DetokenizeBody) -> Annotated[Response, TextOfTokens]:
    """Return the text of tokens."""
    service = await service_of(request, body.model)
    tokens = body.tokens
    await body.aside(_check_ids, tokens, service)
    decoder = service.model.tokenizer.decoder(special=True)

    def spelt(begin: int) -> bytes:
        """Return the text of some tokens as JSON, without the quotes."""
        return to_json("".join(map(decoder.push, tokens[begin : begin + _TOKENS])))[1:-1]

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"content":"'
        for begin in range(0, len(tokens), _TOKENS):
            yield await body.aside(spelt, begin)
        yield to_json(decoder.flush())[1:] + b"}"

    return StreamingResponse(parts(), media_type=JSON)


def _check_ids(tokens: Sequence[int], service: Service) -> None:
    for token in tokens:
        if not 0 <= token < service.model.n_vocab:
            raise bad_request(f"tokens: {show_value(token)} is not a token id of this model")


async def apply_template(request: Request, body: ChatPromptBody) -> Whole[RenderedPrompt]:
    """Return the prompt that the chat template makes of messages."""
    service = await service_of(request, body.model)
    prompt = await prompt_of(body, service)
    return await make_answer(lambda: RenderedPrompt(prompt=prompt), len(prompt))


def _piece(data: bytes) -> Any:
    """Return text, or a list of bytes if they are no whole characters."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
