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
from pumice_server.answer_types import AnthropicAnswer, AnthropicEvent, TokenCount
from pumice_server.answers import Streaming, Wire, event, json_response, unless_gone
from pumice_server.anthropic_request import ID_PREFIX, chat_options, prompt_options, read_messages
from pumice_server.bodies import AnthropicMessagesBody, AnthropicPromptBody
from pumice_server.errors import Problem
from pumice_server.figures import finish_reason
from pumice_server.models import service_of
from pumice_server.options import caching_options
from pumice_server.service import Service
from pumice_server.streams import merge

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
        return Streaming(parts, partial(service.end, streams), _wire(request.state.request_id))
    done = (await unless_gone(request, service.gather(streams)))[0]
    return json_response({**head, "content": _content(done.message), **_end(service, done, options["stop"])})


def _wire(request_id: str) -> Wire:
    def error(problem: Problem) -> bytes:
        return event(problem.anthropic_body(request_id), "error")

    return Wire("text/event-stream", error, event({"type": "ping"}, "ping"))


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
) -> AsyncIterator[bytes]:
    blocks = _Blocks()
    begun = False
    async for _, deltas in merge([stream]):
        if not begun:  # not earlier: its usage needs the prompt's counts
            begun = True
            usage = _usage(pumice.Usage(stream.timings.prompt_tokens, cached_tokens=stream.timings.prompt_cached))
            start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
            yield event({"type": "message_start", "message": start}, "message_start")
        for block_event in chain.from_iterable(map(blocks.take, deltas)):
            yield block_event
    for block_event in blocks.close():
        yield block_event
    end = _end(service, await stream.completion(), stops)
    usage = end.pop("usage")
    yield event({"type": "message_delta", "delta": end, "usage": usage}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


class _Blocks:
    """Turns deltas into content blocks: each block starts, continues and stops before the next one."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""

    def take(self, delta: pumice.ChatDelta) -> Iterator[bytes]:
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

    def close(self) -> Iterator[bytes]:
        """Stop the open block, if any."""
        if self._kind:
            self._kind = ""
            yield event({"type": "content_block_stop", "index": self._index}, "content_block_stop")

    def _open(self, kind: str, block: Mapping[str, Any]) -> Iterator[bytes]:
        if self._kind == kind:
            return
        yield from self.close()
        self._kind = kind
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        yield event(start, "content_block_start")

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return event({"type": "content_block_delta", "index": self._index, "delta": delta}, "content_block_delta")
