"""Endpoints for OpenAI's responses: answers as items, stored for requests that continue them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Annotated, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answer_types import DeletedResponse, ResponseEvent, ResponseObject, TokenCount
from pumice_server.answers import JSON, Streaming, Whole, Wire, event, json_response, make_answer, unless_gone
from pumice_server.bodies import ResponseBody
from pumice_server.errors import Problem
from pumice_server.figures import size_of, timings
from pumice_server.models import service_of
from pumice_server.options import cache_salt
from pumice_server.report import Reading, Report
from pumice_server.response_items import Items, item_id, output_items
from pumice_server.response_store import Kept, ResponseStore
from pumice_server.responses_request import prompt_options, read_input, response_options, with_instructions
from pumice_server.service import Service
from pumice_server.work import aside

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "temperature",
    "top_p",
    "text",
    "user",
)


async def responses(request: Request, body: ResponseBody) -> Annotated[Response, ResponseObject, ResponseEvent]:
    """Answer input items, in the form of OpenAI's responses."""
    service = await service_of(request, body.model)
    messages = await _messages(request, body)
    options = {**await body.aside(response_options, body, service), "cache_salt": cache_salt(request, body)}
    report = Report(body, body.stream)
    starting = service.chat(with_instructions(body, messages), 1, options, report.progress)
    streams = await unless_gone(request, starting)
    answer = _ResponseBuilder(service, body, request, messages)
    if body.stream:
        return Streaming(answer.events(streams[0], report), partial(service.end, streams), answer.wire)
    done = (await unless_gone(request, service.gather(streams)))[0]
    answer_fields = await answer.ended(done, output_items(done.message))
    return await make_answer(lambda: answer_fields, size_of([done]))


async def input_tokens(request: Request, body: ResponseBody) -> Annotated[Response, TokenCount]:
    """Count the tokens of a response's prompt."""
    service = await service_of(request, body.model)
    messages = with_instructions(body, await _messages(request, body))
    options = await body.aside(prompt_options, body)
    n_tokens = await unless_gone(request, service.count_tokens(messages, options, request.state.cache_salt))
    return json_response({"object": "response.input_tokens", "input_tokens": n_tokens})


async def get_response(request: Request) -> Annotated[Response, ResponseObject]:
    """Return a stored response."""
    store: ResponseStore = request.app.state.responses
    return Whole(store.get(request.path_params["id"], request.state.client).response, media_type=JSON)


async def delete_response(request: Request) -> Annotated[Response, DeletedResponse]:
    """Delete a stored response."""
    store: ResponseStore = request.app.state.responses
    id = request.path_params["id"]
    store.delete(id, request.state.client)
    return json_response({"id": id, "object": "response.deleted", "deleted": True})


async def _messages(request: Request, body: ResponseBody) -> list[dict[str, Any]]:
    previous = body.previous_response_id
    store: ResponseStore = request.app.state.responses
    before = store.get(previous, request.state.client).messages if previous else b"[]"
    return await aside(lambda: read_input(body.input, orjson.loads(before)), size=body.size + len(before))


class _ResponseBuilder:
    """Builds one response and its events."""

    def __init__(
        self, service: Service, body: ResponseBody, request: Request, messages: Sequence[Mapping[str, Any]]
    ) -> None:
        self._messages = messages
        self._numbered = _Numbered()
        self.wire = Wire("text/event-stream", self._error, b":\n\n")
        self._owner = request.state.client
        self._store: ResponseStore = request.app.state.responses
        self._always_complete = service.compat
        self._keep = body.store
        self._head = {
            "id": item_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": service.name,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "truncation": "disabled",
            "store": self._keep,
            "usage": None,
            **{name: getattr(body, name) for name in _ECHOED},
        }

    async def ended(self, done: pumice.ChatCompletion, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the whole response, and store it if the request asks for that."""
        complete = self._always_complete or done.finish_reason in ("stop", "tool_calls")
        response = {
            **self._head,
            "status": "completed" if complete else "incomplete",
            "completed_at": int(time.time()),
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": items,
            "usage": _usage(done.usage),
        }
        if self._keep:
            whole = replace(done.message, tool_calls=[call for call in done.message.tool_calls if not call.partial])
            kept = await aside(Kept.of, self._owner, [*self._messages, whole.to_dict()], response)
            self._store.keep(response["id"], kept)
        return response

    async def events(self, stream: pumice.AsyncChatStream, report: Report) -> AsyncIterator[bytes]:
        numbered = self._numbered
        yield numbered("response.created", response=self._head)
        yield numbered("response.in_progress", response=self._head)
        items = Items()
        async for _, deltas in report.merge([stream]):
            if isinstance(deltas, Reading):
                yield numbered("response.in_progress", response=self._head, **deltas.fields)
                continue
            for kind, fields in chain.from_iterable(map(items.take, deltas)):
                yield numbered(kind, **fields, **report.fields(stream.timings))
        for kind, fields in items.close():
            yield numbered(kind, **fields)
        whole = await self.ended(await stream.completion(), items.done)
        yield numbered(f"response.{whole['status']}", response=whole, timings=timings(stream.timings))

    def _error(self, problem: Problem) -> bytes:
        return self._numbered("error", code=problem.type, message=problem.message, param=None)


class _Numbered:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._number = -1

    def __call__(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **fields}, kind)


def _usage(usage: pumice.Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
