"""Validation of a request for the next message of a chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.chat.bounds import MAX_NOTE, MAX_VARIABLE_CHARACTERS, MAX_VARIABLE_VALUES, SizeBudget
from pumice.chat.messages import Message, check_plain, read_messages, read_tools
from pumice.chat.mixed import Media
from pumice.chat.tool_choice import read_choice, split_choice
from pumice.chat.tools import Tool, list_tools
from pumice.errors import RequestError
from pumice.grammar import grammar_source
from pumice.options import TEMPLATE
from pumice.wording import show_value, unknown_name

Messages = str | Iterable[Mapping[str, Any] | Message]

_READ_ELSEWHERE = ("tools", "tool_choice", "response_format", "template_variables")  # each has a reader of its own


@dataclass(frozen=True)
class ChatRequest:
    """A request for the next message of a chat, checked by ``read``; its options are those of ``TemplateOptions``."""

    messages: Sequence[Mapping[str, Any]]
    media: Sequence[Media] = ()  # of the parts of the types "image", "audio" and "video", in their order
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    response_format: Mapping[str, Any] | None = None
    chat_template: str | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning: bool | None = None
    reasoning_effort: str | None = None
    reasoning_budget: int | None = None
    reasoning_budget_message: str = ""
    separate_reasoning: bool = True
    parallel_tool_calls: bool = True
    continue_final_message: bool | None = None
    add_generation_prompt: bool = True

    @classmethod
    def read(cls, messages: Messages, **options: Any) -> ChatRequest:
        """Return the request for ``messages``, checked; the options are those of ``TemplateOptions``.

        Raises:
            RequestError: A message or an option is invalid, or an option is unknown.
        """
        if unknown := options.keys() - TEMPLATE.keys():
            raise RequestError(unknown_name("option", min(unknown), TEMPLATE))
        settings = {name: value for name, value in options.items() if value is not None}
        budget = SizeBudget()
        listed = list_tools(settings.pop("tools", ()))
        described: list[Any] = [tool.definition if isinstance(tool, Tool) else tool for tool in listed]
        budget.take(described, "tools")
        tools, mode = _allowed(read_tools(described), settings.pop("tool_choice", "auto"))
        choice, name = read_choice(mode)
        if name is not None:
            tools, settings["parallel_tool_calls"] = [_tool(_by_name(tools), name)], False
        elif choice == "none":
            tools = []
        elif choice == "required" and not tools:
            raise RequestError("tool_choice: 'required' needs tools, but the request has none")
        effort = settings.get("reasoning_effort")
        if effort == "none":
            settings["reasoning"] = False
        variables = settings.pop("template_variables", {})
        if not isinstance(variables, Mapping):
            raise RequestError(f"template_variables: expected an object, not {show_value(variables)}")
        SizeBudget(MAX_VARIABLE_VALUES, MAX_VARIABLE_CHARACTERS).take(variables, "template_variables")
        check_plain(variables, "template_variables")
        if effort not in (None, "none"):
            variables = {"reasoning_effort": effort, **variables}
        media: list[Media] = []
        read = read_messages(as_messages(messages), budget, media)
        request = cls(read, media, tools, choice, template_variables=variables, **settings)
        request._check()
        return request

    @property
    def continues(self) -> bool:
        """True if the answer continues the last message."""
        if self.continue_final_message is None:
            last = self.messages[-1]
            return self.add_generation_prompt and last["role"] == "assistant" and not last.get("tool_calls")
        return self.continue_final_message

    def _check(self) -> None:
        for name, option in TEMPLATE.items():
            if name not in _READ_ELSEWHERE:
                option.check(getattr(self, name))
        for name in ("reasoning_effort", "reasoning_budget_message"):
            if len(getattr(self, name) or "") > MAX_NOTE:
                raise RequestError(f"{name}: {len(getattr(self, name))} characters, but the limit is {MAX_NOTE}")
        grammar_source(response_format=self.response_format)


def as_messages(messages: Messages) -> Iterable[Mapping[str, Any] | Message]:
    """Return messages; a text is one of the user."""
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _allowed(tools: list[dict[str, Any]], choice: Any) -> tuple[list[dict[str, Any]], Any]:
    """Return the allowed tools and the choice among them."""
    allowed, mode = split_choice(choice)
    if allowed is None:
        return tools, mode
    by_name = _by_name(tools)
    chosen = {name: _tool(by_name, name) for name in (read_choice(item)[1] or "" for item in allowed)}
    return list(chosen.values()), mode


def _by_name(tools: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {tool["function"]["name"]: tool for tool in tools}


def _tool(by_name: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if not by_name:
        raise RequestError(f"tool_choice: {name!r} needs tools, but the request has none")
    if name not in by_name:
        raise RequestError(f"tool_choice: {unknown_name('tool', name, by_name)}")
    return by_name[name]
