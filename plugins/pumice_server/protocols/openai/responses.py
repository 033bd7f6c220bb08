"""Endpoints for OpenAI's responses: answers as items, stored for requests that continue them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from typing import Any

import orjson
from msgspec.structs import replace
from starlette.requests import Request

import pumice
from pumice.plugin.unstable import Problem
from pumice_server.answer_types import CompletionDetails, Deleted, PromptDetails, TokenCount
from pumice_server.interface import (
    JSON,
    WORK,
    Reading,
    Report,
    Service,
    Streaming,
    Whole,
    Wire,
    aside,
    bad_request,
    caching_options,
    event,
    make_answer,
    service_of,
    timings,
    unless_gone,
)
from pumice_server.limits import MAX_APPROVED, MAX_KEPT
from pumice_server.protocols.openai.answer_types import ResponseEvent, ResponseObject, ResponseUsage
from pumice_server.protocols.openai.bodies import ResponseBody
from pumice_server.protocols.openai.response_items import Event, Items, item_id
from pumice_server.protocols.openai.response_store import Kept, ResponseStore, is_reference
from pumice_server.protocols.openai.responses_request import (
    functions,
    prompt_options,
    read_input,
    response_options,
    with_instructions,
)
from pumice_server.protocols.openai.tools.chosen import ChosenTools, choose, names_servers
from pumice_server.protocols.openai.tools.items import (
    ask,
    begin_call,
    check_approvals,
    end_call,
    list_tools,
    listed_servers,
    read_approvals,
    with_calls,
)
from pumice_server.protocols.openai.tools.turns import Call, RunningCall, ToolTurns, settle

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


async def responses(request: Request, body: ResponseBody) -> Whole[ResponseObject] | Streaming[ResponseEvent]:
    """Answer input items, in the format of OpenAI's responses."""
    service = await service_of(request, body.model)
    await _resolve_references(request, body)
    tools = await _tools(request, body)
    messages = await _messages(request, body, tools)
    options = {**await body.aside(response_options, body, service), **caching_options(request, body)}
    approved: Sequence[Call] = ()
    if tools.labels:
        approved = await aside(_settle, body, messages, tools, size=WORK * len(messages) + body.size)
    most, instruct = body.max_tool_calls if tools.labels else None, partial(with_instructions, body)
    turns = ToolTurns(service, request.app.state.tools, tools, messages, options, most, instruct)
    report = Report(body, body.stream)
    first = None if approved else await unless_gone(request, turns.next(report.progress))
    answer = _ResponseBuilder(service, body, request, turns)
    events = answer.events(approved, first, report)
    if body.stream:
        return Streaming(answer.encoded(events), turns.close, answer.wire)
    try:
        response = await unless_gone(request, _last_response(events))
    finally:
        turns.close()
    return await make_answer(lambda: response, WORK * turns.usage.completion_tokens)


async def input_tokens(request: Request, body: ResponseBody) -> TokenCount:
    """Count the tokens of a response's prompt."""
    service = await service_of(request, body.model)
    await _resolve_references(request, body)
    tools = await _tools(request, body)
    messages = with_instructions(body, await _messages(request, body, tools))
    options = await body.aside(prompt_options, body)
    options["tools"] = await body.aside(lambda: tools.definitions)
    n_tokens = await unless_gone(request, service.count_tokens(messages, options | caching_options(request, body)))
    return TokenCount(object="response.input_tokens", input_tokens=n_tokens)


async def get_response(request: Request) -> Whole[ResponseObject]:
    """Return a stored response."""
    store: ResponseStore = request.app.state.responses
    return Whole(store.get(request.path_params["id"], request.state.client).response, media_type=JSON)


async def delete_response(request: Request) -> Deleted:
    """Delete a stored response."""
    store: ResponseStore = request.app.state.responses
    id = request.path_params["id"]
    store.delete(id, request.state.client)
    return Deleted(id=id, object="response.deleted", deleted=True)


def _settle(body: ResponseBody, messages: list[dict[str, Any]], tools: ChosenTools) -> list[Call]:
    """Settle a chat by the approvals of a request, as ``settle``. Raises HTTPException."""
    approvals = read_approvals(body.input)
    check_approvals(approvals, messages)
    approved = settle(messages, tools, approvals)
    if len(approved) > MAX_APPROVED:
        raise bad_request(f"input: it approves {len(approved)} calls; at most {MAX_APPROVED} are accepted")
    return approved


async def _last_response(events: AsyncIterator[Event]) -> ResponseObject:
    last: Event = ("", {})
    async for last in events:  # noqa: B007
        pass
    response: ResponseObject = last[1]["response"]
    return response


async def _tools(request: Request, body: ResponseBody) -> ChosenTools:
    """Return the tools of a request. Raises as ``choose``."""
    described = body.tools or []
    own = await body.aside(lambda: list(functions(described)))
    return await choose(request, described, own, asks=True) if names_servers(described) else ChosenTools(own)


async def _resolve_references(request: Request, body: ResponseBody) -> None:
    """Replace references to items of stored responses by the items. Raises HTTPException if one is not stored."""
    store: ResponseStore = request.app.state.responses
    if isinstance(body.input, list) and any(map(is_reference, body.input)):
        body.input = await aside(store.with_items, body.input, request.state.client, size=MAX_KEPT)


async def _messages(request: Request, body: ResponseBody, tools: ChosenTools) -> list[dict[str, Any]]:
    previous = body.previous_response_id
    store: ResponseStore = request.app.state.responses
    before = store.get(previous, request.state.client).messages if previous else b"[]"
    return await aside(
        lambda: read_input(with_calls(body.input, tools), orjson.loads(before)), size=body.size + len(before)
    )


class _ResponseBuilder:
    """Builds one response and its events."""

    def __init__(self, service: Service, body: ResponseBody, request: Request, turns: ToolTurns) -> None:
        self._turns = turns
        self._numbers = count()
        self.wire = Wire("text/event-stream", event, b":\n\n", self._error)
        self._owner = request.state.client
        self._store: ResponseStore = request.app.state.responses
        self._always_complete = service.compat
        self._keep = body.store
        self._listed = listed_servers(body.input)
        if previous := body.previous_response_id:
            self._listed |= self._store.get(previous, self._owner).listed
        self._head = ResponseObject(
            id=item_id("resp"),
            object="response",
            created_at=int(time.time()),  # noqa: TID251 (shown)
            model=service.name,
            status="in_progress",
            error=None,
            incomplete_details=None,
            output=[],
            parallel_tool_calls=body.parallel_tool_calls is not False,
            tool_choice=body.tool_choice or "auto",
            tools=body.tools or [],
            truncation="disabled",
            store=self._keep,
            usage=None,
            **{name: getattr(body, name) for name in _ECHOED},
        )

    def is_cut(self, done: pumice.ChatCompletion) -> bool:
        """Return True if a limit ended an answer; llama-server calls all of them complete."""
        return not self._always_complete and done.finish_reason not in ("stop", "tool_calls")

    async def ended(self, done: pumice.ChatCompletion, items: Sequence[Mapping[str, Any]]) -> ResponseObject:
        """Return the whole response, and store it if the request asks for that."""
        complete = not self.is_cut(done)
        response = replace(
            self._head,
            status="completed" if complete else "incomplete",
            completed_at=int(time.time()),  # noqa: TID251 (shown)
            incomplete_details=None if complete else {"reason": "max_output_tokens"},
            output=items,
            usage=_usage(self._turns.usage),
        )
        if self._keep:
            ids, listed = [item["id"] for item in items], self._listed | listed_servers(items)
            kept = await aside(Kept.of, self._owner, self._turns.messages, response, ids, listed)
            self._store.keep(response.id, kept)
        return response

    async def events(
        self, approved: Sequence[Call], first: pumice.AsyncChatStream | None, report: Report
    ) -> AsyncIterator[Event]:
        """Yield the events of answers and calls; the last one has the whole response.

        Args:
            approved: Calls that run before the first answer.
            first: The first answer, if no call precedes it.
            report: Progress and timings.
        """
        turns = self._turns
        yield "response.created", {"response": self._head}
        yield "response.in_progress", {"response": self._head}
        items = Items(turns.tools.by_name)
        for listed in list_tools(items, turns.tools, self._listed):
            yield listed
        async for called in _call_events(items, turns, turns.run(approved), was_asked=True):
            yield called
        stream = first or await turns.next(report.progress)
        while True:
            async for _, deltas in report.merge([stream]):
                if isinstance(deltas, Reading):
                    yield "response.in_progress", {"response": self._head, **deltas.fields}
                    continue
                for kind, fields in chain.from_iterable(map(items.take, deltas)):
                    yield kind, {**fields, **report.fields(stream.timings)}
            done = await stream.completion()
            for closed in items.close(self.is_cut(done)):
                yield closed
            async for called in _call_events(items, turns, turns.take(done)):
                yield called
            if not turns.goes_on:
                break
            stream = await turns.next(report.progress)
        for asked in chain.from_iterable(ask(items, call) for call in turns.pending):
            yield asked
        whole = await self.ended(done, items.done)
        yield f"response.{whole.status}", {"response": whole, "timings": timings(stream.timings)}

    async def encoded(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        async for kind, fields in events:
            yield self._numbered(kind, **fields)

    def _numbered(self, kind: str, **fields: Any) -> bytes:
        return event(ResponseEvent(type=kind, sequence_number=next(self._numbers), **fields), kind)

    def _error(self, problem: Problem) -> bytes:
        return self._numbered("error", code=problem.type, message=problem.message, param=None)


async def _call_events(
    items: Items, turns: ToolTurns, running: Sequence[RunningCall], was_asked: bool = False
) -> AsyncIterator[Event]:
    """Yield the events of calls while they run, and complete the messages of ``turns``."""
    for call, outcome in running:
        for begun in begin_call(items, call):
            yield begun
        for ended in end_call(items, call, await outcome, was_asked):
            yield ended
    await turns.finish()


def _usage(usage: pumice.Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=PromptDetails(cached_tokens=usage.cached_tokens, cache_write_tokens=0),
        output_tokens=usage.completion_tokens,
        output_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )
