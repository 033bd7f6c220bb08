"""Plugin of LLM: ``llm -m pumice/NAME`` chats with a GGUF model that Pumice runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import ReasoningPart, StreamEvent, TextPart, ToolCallPart, ToolResultPart
from pydantic import Field, create_model

if TYPE_CHECKING:
    import pumice

PREFIX = "pumice/"
DEMO = "demo"


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    for name in _names():
        register(PumiceModel(name), AsyncPumiceModel(name))


def _names() -> list[str]:
    """Return the demo model, the models on this machine, and the names of the catalogue."""
    from pumice.config import load_config
    from pumice.hub.catalogue import catalogue
    from pumice.hub.store import stored_models

    return list(dict.fromkeys([DEMO, *(model.name for model in stored_models()), *sorted(catalogue(load_config()))]))


@cache
def _load(name: str) -> pumice.Model:
    import pumice

    try:
        return pumice.load() if name == DEMO else pumice.load(name)
    except pumice.PumiceError as error:
        raise llm.ModelError(str(error)) from None


_NAMES = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "seed",
    "reasoning",
    "reasoning_budget",
)


def _options() -> type[llm.Options]:
    """Return the options of ``llm -o``, which are options of ``Model.chat``."""
    from pumice.options import CHAT

    fields: dict[str, Any] = {
        name: (CHAT[name].type | None, Field(None, description=CHAT[name].meaning)) for name in _NAMES
    }
    return create_model("Options", __base__=llm.Options, **fields)


class _Pumice:
    """Base class of the synchronous and the asynchronous model."""

    can_stream = True
    supports_tools = True
    supports_schema = True
    Options = _options()

    def __init__(self, name: str) -> None:
        self.name = name
        self.model_id = PREFIX + name

    def arguments(self, prompt: llm.Prompt) -> dict[str, Any]:
        """Return keyword arguments of ``chat_stream`` for a prompt of LLM."""
        options = {name: value for name, value in prompt.options.model_dump().items() if value is not None}
        tools = [
            {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
            for tool in prompt.tools
        ]
        schema = {"json_schema": prompt.schema} if prompt.schema else {}
        return {**options, **schema, "messages": _messages(prompt), "tools": tools}


class PumiceModel(_Pumice, llm.Model):
    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[StreamEvent]:
        import pumice

        try:
            with _load(self.name).chat_stream(**self.arguments(prompt)) as deltas:
                for delta in deltas:
                    yield from _events(delta, response)
        except pumice.PumiceError as error:
            raise llm.ModelError(str(error)) from None


class AsyncPumiceModel(_Pumice, llm.AsyncModel):
    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.AsyncResponse, conversation: Any = None
    ) -> AsyncIterator[StreamEvent]:
        import pumice

        try:
            model = await asyncio.to_thread(_load, self.name)
            async with model.achat_stream(**self.arguments(prompt)) as deltas:
                async for delta in deltas:
                    for event in _events(delta, response):
                        yield event
        except pumice.PumiceError as error:
            raise llm.ModelError(str(error)) from None


def _messages(prompt: llm.Prompt) -> list[dict[str, Any]]:
    """Return the conversation as messages of a chat completion."""
    messages: list[dict[str, Any]] = []
    for message in prompt.messages:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        messages += [{"role": "tool", "tool_call_id": part.tool_call_id, "content": part.output} for part in results]
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        calls = [
            {"id": part.tool_call_id, "function": {"name": part.name, "arguments": part.arguments}}
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
        if texts or calls:
            messages.append(
                {"role": message.role, "content": "".join(texts), "tool_calls": calls, "reasoning": reasoning}
            )
    return messages


def _events(delta: pumice.ChatDelta, response: Any) -> Iterator[StreamEvent]:
    if delta.reasoning:
        yield StreamEvent(type="reasoning", chunk=delta.reasoning)
    if delta.content:
        yield StreamEvent(type="text", chunk=delta.content)
    for call in delta.tool_calls:
        response.add_tool_call(llm.ToolCall(name=call.name, arguments=call.arguments, tool_call_id=call.id))
    if delta.usage:
        response.set_usage(input=delta.usage.prompt_tokens, output=delta.usage.completion_tokens)
