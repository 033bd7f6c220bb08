"""The turns of a chat whose tools are run: calls are approved, run and answered until the model answers in text."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pumice.chat import ChatCompletion, Message, Messages, Tool, ToolCall, Usage
from pumice.chat.request import as_messages
from pumice.chat.tools import (
    MAX_TURNS,
    REFUSED,
    fitting_result,
    later_options,
    list_tools,
    problem_text,
    refuse_awaitable,
    room_for_result,
)
from pumice.errors import PumiceError, RequestError
from pumice.frontend.loaded import LoadedModel
from pumice.streaming.chat import PreparedChat
from pumice.wording import show_python

Approval = Callable[[ToolCall], bool] | Callable[[ToolCall], Awaitable[bool]]
RunTools = bool | Approval


class ToolLoop:
    """The messages and options of a chat while its tools are run.

    Attributes:
        messages: The conversation with all calls and results so far.
        options: Options of the next answer.
    """

    def __init__(
        self,
        model: LoadedModel,
        messages: Messages | PreparedChat,
        options: Mapping[str, Any],
        run_tools: RunTools,
        max_turns: int = MAX_TURNS,
    ) -> None:
        """Prepare a loop.

        Args:
            model: The model, by whose context and tokens results are cut.
            messages: The conversation, as in ``Model.chat``.
            options: Options of ``chat``; their ``tools`` are functions, ``Tool`` objects and descriptions of tools.
            run_tools: True runs every call; a function is asked for each call, and returns True to run it.
            max_turns: Maximum number of answers with calls.

        Raises:
            RequestError: No tool can be run, or an argument is wrong.
        """
        if isinstance(messages, PreparedChat):
            raise RequestError("run_tools: give the messages of the chat; a prepared chat has a single answer")
        if not (run_tools is True or callable(run_tools)):
            raise RequestError(f"run_tools must be true, false or a function, not {show_python(run_tools)}")
        if type(max_turns) is not int or max_turns < 1:
            raise RequestError(f"max_tool_turns must be an integer, at least 1, not {show_python(max_turns)}")
        described = options.get("tools")
        tools = [] if described is None else list_tools(described)
        self._tools = {tool.name: tool for tool in tools if isinstance(tool, Tool)}
        if not self._tools:
            raise RequestError("run_tools needs functions among tools, but the request has none")
        self.messages: list[Mapping[str, Any] | Message] = list(as_messages(messages))
        self.options: dict[str, Any] = {**options, "tools": tools}
        self._n_before = len(self.messages)
        self._approve = None if run_tools is True else run_tools
        self._left = max_turns
        self._usage = Usage()
        self._model = model
        self._n_result = model.n_ctx

    def check_sync(self) -> None:
        """Raise RequestError if a tool or the approval is a coroutine function, which ``chat`` cannot wait for.

        Other functions that return awaitables are noticed when they are called.
        """
        names = [tool.name for tool in self._tools.values() if tool.needs_achat]
        if self._approve and inspect.iscoroutinefunction(self._approve):
            names.append("run_tools")
        if names:
            raise RequestError(f"{', '.join(names)}: an async function needs achat instead of chat")

    def calls(self, completion: ChatCompletion) -> list[ToolCall]:
        """Add an answer to the messages, and return the calls to run; an empty list ends the loop."""
        self.messages.append(completion.message)
        self._usage = self._usage + completion.usage
        calls = completion.message.tool_calls
        ours = completion.finish_reason == "tool_calls" and all(call.name in self._tools for call in calls)
        self._left -= 1
        if not ours or self._left == 0:
            return []
        self.options.update(later_options(self.options))
        self._n_result = room_for_result(self._model.n_ctx, completion.usage.total_tokens, len(calls))
        return calls

    @property
    def added(self) -> list[Message]:
        """The answers and results so far."""
        return [message for message in self.messages[self._n_before :] if isinstance(message, Message)]

    def result(self, completion: ChatCompletion) -> ChatCompletion:
        """Return the last answer with all messages that were added, and the tokens of all turns."""
        return replace(completion, messages=self.added, usage=self._usage)

    @contextmanager
    def attach_messages(self) -> Iterator[None]:
        """Set the attribute ``messages`` of an exception to the answers and results so far."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, PumiceError) or not hasattr(error, "messages"):
                with suppress(AttributeError):  # an exception of the approval may be immutable
                    error.messages = self.added  # type: ignore[attr-defined]
            raise

    def refuse(self, calls: Sequence[ToolCall], text: str) -> None:
        """Add ``text`` as the result of each call that has none."""
        answered = {message.tool_call_id for message in self.added if message.role == "tool"}
        self.messages += [self._message(call, text) for call in calls if call.id not in answered]

    def run(self, calls: Sequence[ToolCall]) -> None:
        """Run calls one after the other, and add their results to the messages.

        Raises:
            RequestError: A tool or the approval returned an awaitable.
        """
        for call in calls:
            answer = True if self._approve is None else self._approve(call)
            if inspect.isawaitable(answer):
                refuse_awaitable("run_tools", answer)
            text = self._tools[call.name].answer(call) if answer is True else REFUSED
            self.messages.append(self._message(call, text))

    async def arun(self, calls: Sequence[ToolCall]) -> None:
        """Ask for calls one after the other, run them together, and add their results to the messages."""
        approved = [await self._aapprove(call) for call in calls]
        results: dict[int, Message] = {}  # by position; complete unless the task is cancelled

        async def answer(position: int, call: ToolCall) -> None:
            text = await self._tools[call.name].aanswer(call) if approved[position] else REFUSED
            results[position] = self._message(call, text)

        try:
            outcomes = await asyncio.gather(*map(answer, range(len(calls)), calls), return_exceptions=True)
            for position, outcome in enumerate(outcomes):
                if isinstance(outcome, asyncio.CancelledError):  # raised by the tool, since this task goes on
                    results[position] = self._message(calls[position], problem_text(outcome))
                elif outcome is not None:
                    raise outcome
        finally:
            self.messages += [results[position] for position in sorted(results)]

    async def _aapprove(self, call: ToolCall) -> bool:
        answer = True if self._approve is None else self._approve(call)
        return (await answer if inspect.isawaitable(answer) else answer) is True

    def _message(self, call: ToolCall, text: str) -> Message:
        """Return the message with the result of a call, cut to what fits the context."""
        tokenize = partial(self._model.tokenizer.tokenize, add_special=False, parse_special=False)
        return fitting_result(call, text, self._n_result, tokenize)
