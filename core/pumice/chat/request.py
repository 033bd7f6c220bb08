"""A request for the next message of a chat, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pumice.chat.bounds import MAX_NOTE, MAX_VARIABLE_CHARACTERS, MAX_VARIABLE_VALUES, Budget
from pumice.chat.messages import Message, check_plain, read_messages, read_tools, shown
from pumice.errors import RequestError
from pumice.grammar import grammar_source
from pumice.suggest import unknown_name

Messages = Iterable[Mapping[str, Any] | Message]

_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True)
class ChatRequest:
    """What the next message is made from; ``read`` makes one of what users give.

    Attributes:
        messages: the chat so far.
        tools: functions that the model may call, as chat completions describe them.
        tool_choice: "auto" lets the model decide, "none" hides the tools, "required" needs a call. What names a tool,
            by its name or as chat completions do, leaves that tool alone and needs one call.
        response_format: what the answer has to look like, as chat completions have it: None, or of the type "text",
            "json_object" or "json_schema".
        chat_template: the name of a template, or a template; None: that of the model.
        template_variables: further variables of the template.
        reasoning: True or False switch it on or off; None leaves it to the template.
        reasoning_effort: for templates that know it, "low", "medium" or "high" say; "none" switches reasoning off.
        reasoning_budget: most tokens of reasoning; after them it is ended, and the answer follows.
        reasoning_budget_message: what the model is made to say before such an end.
        separate_reasoning: False leaves the reasoning in the content, with its marks.
        parallel_tool_calls: False: of several calls in an answer the first counts.
        continue_final_message: go on with the last message, the assistant's; None: if it is the assistant's.
        add_generation_prompt: begin a message of the assistant.
    """

    messages: Sequence[Mapping[str, Any]]
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
        """Check what was given. Raises RequestError, which says what is wrong and where."""
        given = {name: value for name, value in options.items() if value is not None}
        budget = Budget()
        budget.take(given.get("tools"), "tools")
        tools = read_tools(given.pop("tools", None))
        tools, said = _allowed(tools, given.pop("tool_choice", "auto"))
        choice, name = _choice(said)
        if name is not None:
            tools, given["parallel_tool_calls"] = [_tool(tools, name)], False
        elif choice == "none":
            tools = []
        elif choice == "required" and not tools:
            raise RequestError("tool_choice: 'required' needs tools, and there are none")
        effort = given.get("reasoning_effort")
        if effort == "none":
            given["reasoning"] = False
        variables = given.pop("template_variables", {})
        if not isinstance(variables, Mapping):
            raise RequestError(f"template_variables: expected an object, not {shown(variables)}")
        Budget(MAX_VARIABLE_VALUES, MAX_VARIABLE_CHARACTERS).take(variables, "template_variables")
        check_plain(variables, "template_variables")
        if effort not in (None, "none"):
            variables = {"reasoning_effort": effort, **variables}
        request = cls(read_messages(messages, budget), tools, choice, template_variables=variables, **given)
        request._check()
        return request

    @property
    def continues(self) -> bool:
        """Whether the answer goes on with the last message."""
        if self.continue_final_message is None:
            last = self.messages[-1]
            return self.add_generation_prompt and last["role"] == "assistant" and not last.get("tool_calls")
        return self.continue_final_message

    def _check(self) -> None:
        switches = ("reasoning", "continue_final_message", "add_generation_prompt")
        for name in (*switches, "separate_reasoning", "parallel_tool_calls"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise RequestError(f"{name}: expected True or False, not {shown(value)}")
        budget = self.reasoning_budget
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 0):
            raise RequestError(f"reasoning_budget: expected a number of tokens, 0 or more, not {shown(budget)}")
        for name in ("reasoning_effort", "reasoning_budget_message", "chat_template"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise RequestError(f"{name}: expected text, not {shown(value)}")
            if value is not None and name != "chat_template" and len(value) > MAX_NOTE:
                raise RequestError(f"{name}: {len(value)} characters, at most {MAX_NOTE} are taken")
        grammar_source(response_format=self.response_format)


OPTIONS = frozenset(item.name for item in fields(ChatRequest)) - {"messages"}
"""The names of what ``read`` takes beside messages."""


def _allowed(tools: list[dict[str, Any]], choice: Any) -> tuple[list[dict[str, Any]], Any]:
    """The tools, and what is said of them: OpenAI's ``allowed_tools`` names some, and says it inside."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return tools, choice
    inner = choice.get("allowed_tools", choice)
    allowed = inner.get("tools") if isinstance(inner, Mapping) else None
    if not isinstance(allowed, list):
        raise RequestError("tool_choice: allowed_tools needs a mode and tools")
    return [_tool(tools, _choice(each)[1] or "") for each in allowed], inner.get("mode", "auto")


def _choice(given: Any) -> tuple[str, str | None]:
    """What is said of calls, and the name of the tool that is chosen, if one is."""
    if isinstance(given, Mapping):
        function = given.get("function")
        name = function.get("name") if isinstance(function, Mapping) else given.get("name")
    else:
        name = given
    if not isinstance(name, str):
        raise RequestError('tool_choice: expected "auto", "none", "required" or the name of a tool')
    return (name, None) if name is given and name in _CHOICES else ("required", name)


def _tool(tools: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    by_name = {tool["function"]["name"]: tool for tool in tools}
    if not by_name:
        raise RequestError(f"tool_choice: {name!r} needs tools, and there are none")
    if name not in by_name:
        raise RequestError(f"tool_choice: {unknown_name('tool', name, by_name)}")
    return by_name[name]
