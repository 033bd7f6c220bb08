"""Anthropic's messages: ``POST /v1/messages`` and ``count_tokens``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice.plugin.unstable import Problem
from pumice_server.answer_types import TokenCount
from pumice_server.interface import (
    TOO_LONG,
    Service,
    Streaming,
    Wire,
    caching_options,
    event,
    finish_reason,
    json_response,
    merge,
    service_of,
    unless_gone,
)
from pumice_server.protocols.anthropic.answer_types import AnthropicAnswer, AnthropicEvent
from pumice_server.protocols.anthropic.bodies import AnthropicMessagesBody, AnthropicPromptBody
from pumice_server.protocols.anthropic.request import ID_PREFIX, chat_options, prompt_options, read_messages

_ERROR_TYPES = {400: "invalid_request_error", 413: "request_too_large", 500: "api_error", 503: "overloaded_error"}
"""Error types of Anthropic that differ from llama-server's, by status."""
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


async def messages(
    request: Request, body: AnthropicMessagesBody
) -> Annotated[Response, AnthropicAnswer, AnthropicEvent]:
    """Answer a chat, in the form of Anthropic's messages."""
    service = await service_of(request, body.model)
    options = {**await body.aside(chat_options, body, service), **caching_options(request, body)}
    streams = await unless_gone(request, service.chat(await body.aside(read_messages, body), 1, options))
    head = {
        "id": f"msg_{secrets.token_urlsafe(18)}",
        "type": "message",
        "role": "assistant",
        "model": service.name,
    }
    if body.stream:
        parts = _events(service, head, streams[0], options["stop"])
        return Streaming(parts, partial(service.end, streams), _WIRE)
    done = (await unless_gone(request, service.gather(streams)))[0]
    return json_response({**head, "content": _content(done.message), **_end(service, done, options["stop"])})


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    message = problem.message
    if problem.type == TOO_LONG:  # words that Claude Code looks for before it shortens its chat
        message = f"prompt is too long: {message}"
    error = {"type": _ERROR_TYPES.get(problem.status, problem.type), "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def _event(value: Mapping[str, Any]) -> bytes:
    return event(value, value["type"])


_WIRE = Wire("text/event-stream", _event, _event({"type": "ping"}))


async def count_tokens(request: Request, body: AnthropicPromptBody) -> Annotated[Response, TokenCount]:
    """Count the tokens of a chat's prompt, in Anthropic's form."""
    service = await service_of(request, body.model)
    messages = await body.aside(read_messages, body)
    options = await body.aside(prompt_options, body)
    n_tokens = await unless_gone(request, service.count_tokens(messages, options | caching_options(request, body)))
    return json_response({"input_tokens": n_tokens})


def _content(message: pumice.Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    return [*blocks, *({**_tool_use(call), "input": call.arguments} for call in message.tool_calls)]


def _tool_use(call: pumice.ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": ID_PREFIX + call.id, "name": call.name, "input": {}}


def _end(service: Service, done: pumice.ChatCompletion, stops: Sequence[str]) -> dict[str, Any]:
    word = service.stopping_word(done, stops)
    reason = "stop_sequence" if word else _STOP_REASONS[finish_reason(done.finish_reason)]
    return {"stop_reason": reason, "stop_sequence": word or None, "usage": _usage(done.usage)}


def _usage(usage: pumice.Usage) -> dict[str, int]:
    """Return usage; ``input_tokens`` counts prompt tokens that were not in the cache."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }


async def _events(
    service: Service, head: Mapping[str, Any], stream: pumice.AsyncChatStream, stops: Sequence[str]
) -> AsyncIterator[dict[str, Any]]:
    blocks = _Blocks()
    begun = False
    async for _, deltas in merge([stream]):
        if not begun:  # not earlier: its usage needs the prompt's counts
            begun = True
            usage = _usage(pumice.Usage(stream.timings.prompt_tokens, cached_tokens=stream.timings.prompt_cached))
            start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
            yield {"type": "message_start", "message": start}
        for block_event in chain.from_iterable(map(blocks.take, deltas)):
            yield block_event
    for block_event in blocks.close():
        yield block_event
    end = _end(service, await stream.completion(), stops)
    usage = end.pop("usage")
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


class _Blocks:
    """Turns deltas into content blocks: each block starts, continues and stops before the next one."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""

    def take(self, delta: pumice.ChatDelta) -> Iterator[dict[str, Any]]:
        if delta.reasoning:
            yield from self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            yield from self._open("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": delta.content})
        for call in delta.tool_calls:
            yield from self.close()
            yield from self._open("tool_use", _tool_use(call))
            yield self._delta({"type": "input_json_delta", "partial_json": call.to_dict()["function"]["arguments"]})

    def close(self) -> Iterator[dict[str, Any]]:
        """Stop the open block, if any."""
        if self._kind:
            self._kind = ""
            yield {"type": "content_block_stop", "index": self._index}

    def _open(self, kind: str, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if self._kind == kind:
            return
        yield from self.close()
        self._kind = kind
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        yield start

    def _delta(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}
