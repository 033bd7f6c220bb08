"""Anthropic's messages: ``POST /v1/messages`` and ``count_tokens``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from starlette.requests import Request

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
    merge,
    service_of,
    unless_gone,
)
from pumice_server.protocols.anthropic.answer_types import AnswerBlock, AnthropicAnswer, AnthropicEvent, AnthropicUsage
from pumice_server.protocols.anthropic.bodies import AnthropicMessagesBody, AnthropicPromptBody
from pumice_server.protocols.anthropic.request import ID_PREFIX, chat_options, prompt_options, read_messages

_ERROR_TYPES = {400: "invalid_request_error", 413: "request_too_large", 500: "api_error", 503: "overloaded_error"}
"""Error types of Anthropic that differ from llama-server's, by status."""
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


async def messages(request: Request, body: AnthropicMessagesBody) -> AnthropicAnswer | Streaming[AnthropicEvent]:
    """Answer a chat, in the format of Anthropic's messages."""
    service = await service_of(request, body.model)
    options = {**await body.aside(chat_options, body, service), **caching_options(request, body)}
    streams = await unless_gone(request, service.chat(await body.aside(read_messages, body), 1, options))
    id = f"msg_{secrets.token_urlsafe(18)}"
    if body.stream:
        parts = _events(service, id, streams[0], options["stop"])
        return Streaming(parts, partial(service.end, streams), _WIRE)
    done = (await unless_gone(request, service.gather(streams)))[0]
    return AnthropicAnswer(
        id=id,
        type="message",
        role="assistant",
        model=service.name,
        content=_content(done.message),
        usage=_usage(done.usage),
        **_end(service, done, options["stop"]),
    )


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    message = problem.message
    if problem.type == TOO_LONG:  # words that Claude Code looks for before it shortens its chat
        message = f"prompt is too long: {message}"
    error = {"type": _ERROR_TYPES.get(problem.status, problem.type), "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def _event(value: AnthropicEvent | Mapping[str, Any]) -> bytes:
    return event(value, value["type"] if isinstance(value, Mapping) else value.type)


_WIRE = Wire("text/event-stream", _event, _event({"type": "ping"}))


async def count_tokens(request: Request, body: AnthropicPromptBody) -> TokenCount:
    """Count the tokens of a chat's prompt, in Anthropic's format."""
    service = await service_of(request, body.model)
    messages = await body.aside(read_messages, body)
    options = await body.aside(prompt_options, body)
    n_tokens = await unless_gone(request, service.count_tokens(messages, options | caching_options(request, body)))
    return TokenCount(input_tokens=n_tokens)


def _content(message: pumice.Message) -> list[AnswerBlock]:
    blocks = [AnswerBlock(type="thinking", thinking=message.reasoning, signature="")] if message.reasoning else []
    blocks += [AnswerBlock(type="text", text=message.content)] if message.content else []
    return [*blocks, *(_tool_use(call, call.arguments) for call in message.tool_calls)]


def _tool_use(call: pumice.ToolCall, arguments: dict[str, Any]) -> AnswerBlock:
    return AnswerBlock(type="tool_use", id=ID_PREFIX + call.id, name=call.name, input=arguments)


def _end(service: Service, done: pumice.ChatCompletion, stops: Sequence[str]) -> dict[str, str | None]:
    """Return the reason why an answer ended, and the stop sequence that ended it."""
    word = service.stopping_word(done, stops)
    reason = "stop_sequence" if word else _STOP_REASONS[finish_reason(done.finish_reason)]
    return {"stop_reason": reason, "stop_sequence": word or None}


def _usage(usage: pumice.Usage) -> AnthropicUsage:
    """Return usage; ``input_tokens`` counts prompt tokens that were not in the cache."""
    return AnthropicUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        cache_creation_input_tokens=0,
        output_tokens=usage.completion_tokens,
    )


async def _events(
    service: Service, id: str, stream: pumice.AsyncChatStream, stops: Sequence[str]
) -> AsyncIterator[AnthropicEvent]:
    blocks = _Blocks()
    begun = False
    async for _, deltas in merge([stream]):
        if not begun:  # not earlier: its usage needs the prompt's counts
            begun = True
            usage = _usage(pumice.Usage(stream.timings.prompt_tokens, cached_tokens=stream.timings.prompt_cached))
            start = AnthropicAnswer(
                id=id,
                type="message",
                role="assistant",
                model=service.name,
                content=[],
                stop_reason=None,
                stop_sequence=None,
                usage=usage,
            )
            yield AnthropicEvent(type="message_start", message=start)
        for block_event in chain.from_iterable(map(blocks.take, deltas)):
            yield block_event
    for block_event in blocks.close():
        yield block_event
    done = await stream.completion()
    yield AnthropicEvent(type="message_delta", delta=_end(service, done, stops), usage=_usage(done.usage))
    yield AnthropicEvent(type="message_stop")


class _Blocks:
    """Turns deltas into content blocks: each block starts, continues and stops before the next one."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""

    def take(self, delta: pumice.ChatDelta) -> Iterator[AnthropicEvent]:
        if delta.reasoning:
            yield from self._open(AnswerBlock(type="thinking", thinking="", signature=""))
            yield self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            yield from self._open(AnswerBlock(type="text", text=""))
            yield self._delta({"type": "text_delta", "text": delta.content})
        for call in delta.tool_calls:
            yield from self.close()
            yield from self._open(_tool_use(call, {}))
            yield self._delta({"type": "input_json_delta", "partial_json": call.to_dict()["function"]["arguments"]})

    def close(self) -> Iterator[AnthropicEvent]:
        """Stop the open block, if any."""
        if self._kind:
            self._kind = ""
            yield AnthropicEvent(type="content_block_stop", index=self._index)

    def _open(self, block: AnswerBlock) -> Iterator[AnthropicEvent]:
        if self._kind == block.type:
            return
        yield from self.close()
        self._kind = block.type
        self._index += 1
        yield AnthropicEvent(type="content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> AnthropicEvent:
        return AnthropicEvent(type="content_block_delta", index=self._index, delta=delta)
