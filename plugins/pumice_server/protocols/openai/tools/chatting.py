"""Chat completions whose tools are, in part, those of MCP servers: one answer, with the calls that were made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request

import pumice
from pumice_server.answer_types import Timings
from pumice_server.interface import (
    DONE,
    WORK,
    Reading,
    Report,
    Service,
    Streaming,
    Whole,
    bad_request,
    finish_reason,
    make_answer,
    streaming,
    timings,
    unless_gone,
)
from pumice_server.protocols.openai.answer_types import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChunkChoice,
    McpCall,
    MessageDelta,
)
from pumice_server.protocols.openai.bodies import ChatBody
from pumice_server.protocols.openai.chat_answer import PartBuilder, delta_of, total_usage
from pumice_server.protocols.openai.control import RunningAnswer, RunningAnswers
from pumice_server.protocols.openai.tools.chosen import choose
from pumice_server.protocols.openai.tools.items import ended_call
from pumice_server.protocols.openai.tools.turns import ToolTurns


async def answer_with_tools(
    request: Request, body: ChatBody, service: Service, options: Mapping[str, Any], report: Report
) -> Whole[ChatCompletion] | Streaming[ChatCompletionChunk]:
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
        self._calls: list[McpCall] = []
        self._functions: list[pumice.ToolCall] = []
        self._last: pumice.ChatCompletion | None = None
        self._timings: Timings | None = None

    async def parts(self, stream: pumice.AsyncChatStream) -> AsyncIterator[ChatCompletionChunk]:
        """Yield the parts of a stream: contents as they come, and each call of a server's tool once it has ended."""
        yield self._part(MessageDelta(role="assistant", content=None))
        while True:
            async for _, deltas in self._report.merge([stream]):
                if isinstance(deltas, Reading):
                    yield self._part(None, **deltas.fields)
                    continue
                for delta in deltas:
                    part, logprobs = self._delta(delta), self._head.logprobs(delta.logprobs)
                    if part or logprobs:
                        yield self._part(part, logprobs=logprobs, **self._report.fields(stream.timings))
            done = await stream.completion()
            for call, outcome in self._turns.take(done):
                self._calls.append(McpCall(**ended_call(call, await outcome)))
                numbered = replace(self._calls[-1], index=len(self._calls) - 1)
                yield self._part(MessageDelta(mcp_calls=[numbered]))
            await self._turns.finish()
            self.contents.append(done.message.content)
            self._reasoning.append(done.message.reasoning)
            if not self._turns.goes_on:
                break
            stream = await self._turns.next(self._report.progress)
        self._last, self._timings = done, timings(stream.timings)
        yield self._part(None, self._reason, **self._report.fields(stream.timings, ended=True))

    async def encoded(self, parts: AsyncIterator[ChatCompletionChunk]) -> AsyncIterator[ChatCompletionChunk | bytes]:
        async for part in parts:
            yield part
        if self._report.usage:
            yield self._head.chunk([], usage=total_usage([self._turns.usage]), timings=self._timings)
        yield DONE

    def whole(self) -> ChatCompletion:
        """Return the complete answer."""
        assert self._last is not None
        message = pumice.Message("".join(self.contents), "".join(self._reasoning), self._functions).to_dict()
        choice = ChatChoice(
            index=0,
            message=AnswerMessage(**message, mcp_calls=self._calls or None),
            finish_reason=self._reason,
            logprobs=self._head.logprobs(self._last.logprobs),
        )
        return self._head.whole([choice], usage=total_usage([self._turns.usage]), timings=self._timings)

    @property
    def _reason(self) -> str:
        assert self._last is not None
        return finish_reason(self._last.finish_reason)

    def _delta(self, delta: pumice.ChatDelta) -> MessageDelta | None:
        functions = [call for call in delta.tool_calls if call.name not in self._turns.tools.by_name]
        part = delta_of(delta._replace(tool_calls=functions), len(self._functions))
        self._functions += functions
        return part

    def _part(
        self,
        delta: MessageDelta | None,
        reason: str | None = None,
        logprobs: ChatLogprobs | None = None,
        **others: Any,
    ) -> ChatCompletionChunk:
        choice = ChunkChoice(index=0, delta=delta or MessageDelta(), finish_reason=reason, logprobs=logprobs)
        return self._head.chunk([choice], **others)
