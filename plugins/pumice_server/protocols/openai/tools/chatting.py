"""Chat completions whose tools are, in part, those of MCP servers: one answer, with the calls that were made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.interface import (
    DONE,
    WORK,
    Reading,
    Report,
    Service,
    bad_request,
    event,
    finish_reason,
    make_answer,
    streaming,
    timings,
    unless_gone,
)
from pumice_server.protocols.openai.bodies import ChatBody
from pumice_server.protocols.openai.chat_answer import PartBuilder, delta_parts, total_usage
from pumice_server.protocols.openai.control import RunningAnswer, RunningAnswers
from pumice_server.protocols.openai.tools.chosen import choose
from pumice_server.protocols.openai.tools.items import ended_call
from pumice_server.protocols.openai.tools.turns import ToolTurns


async def answer_with_tools(
    request: Request, body: ChatBody, service: Service, options: Mapping[str, Any], report: Report
) -> Response:
    """Answer a chat that names MCP servers among its tools.

    The answer's text is that of all turns; calls of servers' tools are in ``mcp_calls``, those of functions, which the
    client runs, in ``tool_calls``.
    """
    if body.n != 1:
        raise bad_request("n: a request whose tools this server runs has one answer")
    offered = body.tools or []
    functions = [tool for tool in offered if tool.get("type") != "mcp"]
    tools = await unless_gone(request, choose(request, offered, functions, asks=False))
    turns = ToolTurns(service, request.app.state.tools, tools, body.messages, options)
    head = PartBuilder(service)
    answer = _Answer(head, turns, report)
    first = await unless_gone(request, turns.next(report.progress))
    parts = answer.parts(first)
    if body.stream:
        running: RunningAnswers = request.app.state.running
        running.add(head.id, RunningAnswer(request.state.client, turns.streams, body.reasoning_control))

        def end() -> None:
            running.remove(head.id)
            turns.close()

        return streaming(request, answer.encoded(parts), end)
    try:
        await unless_gone(request, _exhaust(parts))
    finally:
        turns.close()
    return await make_answer(answer.whole, WORK * sum(map(len, answer.contents)))


async def _exhaust(parts: AsyncIterator[Any]) -> None:
    async for _ in parts:
        pass


class _Answer:
    """Builds one answer and its parts.

    Attributes:
        contents: Contents of all turns so far.
    """

    def __init__(self, head: PartBuilder, turns: ToolTurns, report: Report) -> None:
        self.contents: list[str] = []
        self._head, self._turns, self._report = head, turns, report
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._functions: list[pumice.ToolCall] = []
        self._last: pumice.ChatCompletion | None = None
        self._timings: Mapping[str, Any] = {}

    async def parts(self, stream: pumice.AsyncChatStream) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the parts of a stream: contents as they come, and each call of a server's tool once it has ended."""
        yield self._part({"role": "assistant", "content": None})
        while True:
            async for _, deltas in self._report.merge([stream]):
                if isinstance(deltas, Reading):
                    yield self._part({}, **deltas.fields)
                    continue
                for delta in deltas:
                    parts, logprobs = self._delta(delta), self._head.logprobs(delta.logprobs)
                    if parts or logprobs:
                        yield self._part(parts, logprobs=logprobs, **self._report.fields(stream.timings))
            done = await stream.completion()
            for call, outcome in self._turns.take(done):
                self._calls.append(ended_call(call, await outcome))
                yield self._part({"mcp_calls": [{"index": len(self._calls) - 1, **self._calls[-1]}]})
            await self._turns.finish()
            self.contents.append(done.message.content)
            self._reasoning.append(done.message.reasoning)
            if not self._turns.goes_on:
                break
            stream = await self._turns.next(self._report.progress)
        self._last, self._timings = done, timings(stream.timings)
        yield self._part({}, self._reason, **self._report.fields(stream.timings, ended=True))

    async def encoded(self, parts: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
        async for part in parts:
            yield event(part)
        if self._report.usage:
            total = total_usage([self._turns.usage])
            yield event(self._head.part("chat.completion.chunk", [], usage=total, timings=self._timings))
        yield DONE

    def whole(self) -> Mapping[str, Any]:
        """Return the complete answer."""
        assert self._last is not None
        message = pumice.Message("".join(self.contents), "".join(self._reasoning), self._functions).to_dict()
        choice = {
            "index": 0,
            "message": {**message, **({"mcp_calls": self._calls} if self._calls else {})},
            "finish_reason": self._reason,
            "logprobs": self._head.logprobs(self._last.logprobs),
        }
        total = total_usage([self._turns.usage])
        return self._head.part("chat.completion", [choice], usage=total, timings=self._timings)

    @property
    def _reason(self) -> str:
        assert self._last is not None
        return finish_reason(self._last.finish_reason)

    def _delta(self, delta: pumice.ChatDelta) -> dict[str, Any]:
        functions = [call for call in delta.tool_calls if call.name not in self._turns.tools.by_name]
        parts = delta_parts(delta._replace(tool_calls=functions), len(self._functions))
        self._functions += functions
        return parts

    def _part(self, delta: Mapping[str, Any], reason: str | None = None, logprobs: Any = None, **others: Any) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": logprobs}
        return self._head.part("chat.completion.chunk", [choice], **others)
