"""The turns of a request whose tools the server runs: an answer, the results of its calls, the next answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pumice
from pumice.chat.tools import MAX_TURNS, fitting_result, later_options, room_for_result
from pumice.mcp import HostedTools, ToolError
from pumice_server.interface import WORK, CompletionProgress, Service, aside, too_late
from pumice_server.limits import MAX_RUN_CALLS
from pumice_server.protocols.openai.tools.chosen import ChosenTools, ServerTool

_UNANSWERED = "Error: the user has not approved this call"

Instruct = Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
"""Returns the messages of the prompt for those of the chat."""


class Call(NamedTuple):
    """A call that the server runs, and the message of the chat that gets its result."""

    call: pumice.ToolCall
    tool: ServerTool
    result: dict[str, Any]

    @classmethod
    def of(cls, call: pumice.ToolCall, tool: ServerTool) -> Call:
        return cls(call, tool, {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": ""})

    @property
    def arguments(self) -> str:
        """Arguments as JSON text."""
        text: str = self.call.to_dict()["function"]["arguments"]
        return text


class Outcome(NamedTuple):
    """The result of a call, as the model reads it without ``Error: ``."""

    text: str
    is_error: bool

    @property
    def message(self) -> str:
        """The result as the model reads it."""
        return f"Error: {self.text}" if self.is_error else self.text


class RunningCall(NamedTuple):
    """A call that runs; ``outcome`` ends with its result."""

    call: Call
    outcome: asyncio.Task[Outcome]


class ToolTurns:
    """The answers and calls of one request.

    Attributes:
        messages: The chat so far, with all answers and results.
        tools: Tools of the request.
        streams: The streams of all answers so far.
        usage: Tokens of all answers so far.
        pending: Calls of the last answer that need the user's approval.
        goes_on: True if another answer follows.
    """

    def __init__(
        self,
        service: Service,
        hosted: HostedTools,
        tools: ChosenTools,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        max_calls: int | None = None,
        instruct: Instruct = list,
    ) -> None:
        """Prepare a request.

        Args:
            service: Service of the model.
            hosted: Process that runs the tools.
            tools: Tools of the request.
            messages: The chat.
            options: Options of ``Service.chat``, without tools.
            max_calls: Maximum number of calls that the server runs; None for no other limit than that of answers.
            instruct: Returns the messages of the prompt for those of the chat.
        """
        self.messages: list[Mapping[str, Any]] = list(messages)
        self.tools = tools
        self.streams: list[pumice.AsyncChatStream] = []
        self.usage = pumice.Usage()
        self.pending: list[Call] = []
        self._service, self._hosted, self._instruct = service, hosted, instruct
        self._options = dict(options)
        self._calls_left = MAX_TURNS * MAX_RUN_CALLS if max_calls is None else max_calls
        self._turns_left = MAX_TURNS
        self._deadline = time.monotonic() + service.timeout
        self._running: list[RunningCall] = []
        self.goes_on = True

    async def next(self, progress: CompletionProgress | None = None) -> pumice.AsyncChatStream:
        """Start the next answer, as ``Service.chat``. The last one that the request may have makes no calls."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise too_late()
        self._turns_left -= 1
        self.tools.check_choice(self._options.get("tool_choice"))
        definitions = await aside(lambda: self.tools.definitions, size=sum(map(_size, self.tools.by_name.values())))
        options = {**self._options, "tools": definitions}
        if self._turns_left == 0 or self._calls_left <= 0:
            options["tool_choice"] = "none"
        service = self._service.within(remaining)
        stream = (await service.chat(self._instruct(self.messages), 1, options, progress))[0]
        self.streams.append(stream)
        return stream

    def take(self, completion: pumice.ChatCompletion) -> list[RunningCall]:
        """Add an answer to the messages, and return its calls that run now; afterwards call ``finish``."""
        self.usage += completion.usage
        message = completion.message
        self.messages.append(whole_message(message))
        by_name = self.tools.by_name
        calls = [call for call in message.tool_calls if not call.partial]
        ours = [Call.of(call, by_name[call.name]) for call in calls if call.name in by_name]
        if completion.finish_reason != "tool_calls" or not ours:
            self.goes_on = False
            return []
        self.pending = [call for call in ours if call.tool.needs_approval]
        self.goes_on = len(ours) == len(calls) and not self.pending
        self._options.update(later_options(self._options))
        at_once = [call for call in ours if not call.tool.needs_approval]
        self.messages += [call.result for call in at_once]
        return self.run(at_once, completion.usage.total_tokens)

    def run(self, calls: Sequence[Call], n_used: int = 0) -> list[RunningCall]:
        """Start calls, whose results are among the messages; ``n_used`` tokens of the context are taken."""
        limit = room_for_result(self._service.model.n_ctx, n_used, max(1, len(calls)))
        for position, call in enumerate(calls):
            allowed = position < MAX_RUN_CALLS and self._calls_left > 0
            self._calls_left -= 1
            outcome = self._outcome(call, limit) if allowed else _refused()
            self._running.append(RunningCall(call, asyncio.create_task(outcome)))
        return list(self._running)

    async def finish(self) -> None:
        """Wait for the running calls, and complete the messages."""
        for call, outcome in self._running:
            call.result["content"] = (await outcome).message
        self._running = []

    def close(self) -> None:
        """Cancel calls, and end all answers."""
        for running in self._running:
            running.outcome.cancel()
        self._service.end(self.streams)

    async def _outcome(self, call: Call, max_tokens: int) -> Outcome:
        """Run a call; its result is cut to ``max_tokens``."""
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                text, is_error = await self._hosted.call(call.tool.offered.name, call.call.arguments), False
        except ToolError as error:
            text, is_error = str(error), True
        except TimeoutError:
            text, is_error = "the time of this request is over", True
        tokenize = self._service.model.tokenizer.tokenize
        message = await aside(lambda: fitting_result(call.call, text, max_tokens, tokenize), size=WORK * len(text))
        return Outcome(message.content, is_error)


def settle(messages: list[dict[str, Any]], tools: ChosenTools, approvals: Mapping[str, str]) -> list[Call]:
    """Add results of calls that waited for the user's approval to a chat; return those of the last answer to run.

    Args:
        messages: The chat.
        tools: Tools of the request.
        approvals: For the id of each call that the user answered the refusal, or an empty string.
    """
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    settled: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []  # results that follow those of the same answer
    approved: list[list[Call]] = []
    for message in messages:
        if message.get("role") != "tool":
            settled += added
            added = []
        settled.append(message)
        calls = [
            Call.of(call, tools.by_name[call.name])
            for call in map(_read_call, message.get("tool_calls") or ())
            if call is not None and call.id not in answered and call.name in tools.by_name
        ]
        for call in calls:
            call.result["content"] = approvals.get(call.call.id, _UNANSWERED)
        added += [call.result for call in calls]
        approved.append([call for call in calls if not call.result["content"]])
    messages[:] = settled + added
    return [call for calls in reversed(approved) for call in calls]


def _read_call(call: Mapping[str, Any]) -> pumice.ToolCall | None:
    """Return a call of a message; None if its arguments are no object."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    return pumice.ToolCall(str(function.get("name")), arguments, str(call.get("id")))


def whole_message(message: pumice.Message) -> dict[str, Any]:
    """Return an answer without calls that are incomplete."""
    value = message.to_dict()
    if any(call.partial for call in message.tool_calls):
        value["tool_calls"] = [call.to_dict() for call in message.tool_calls if not call.partial]
        if not value["tool_calls"]:
            del value["tool_calls"]
    return value


def _size(tool: ServerTool) -> int:
    return len(tool.offered.parameters)


async def _refused() -> Outcome:
    return Outcome("this request may make no further calls", True)
