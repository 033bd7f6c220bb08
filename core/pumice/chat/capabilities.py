"""Detect the capabilities of a chat template by rendering chats; the names are those of llama-server."""

from __future__ import annotations

from typing import Any

from pumice.chat.template import ChatTemplate, reasoning_variables
from pumice.chat.traits import attempt

# Strings that no template contains.
_NAMES, _IDS, _REASONING = ("first_name", "second_name"), ("123456781", "123456782"), "REASONINGTEXT"
_EFFORTS = ("none", "low", "high", "max")
_USER = {"role": "user", "content": "A question."}

#: Template variables that keep the reasoning of earlier turns.
_KEEP_REASONING = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}


def capabilities(template: ChatTemplate) -> dict[str, bool]:
    """Return which roles, content types, tools and reasoning ``template`` supports, by llama-server's names."""
    n_calls = _n_calls(template)
    return {
        "supports_string_content": not template.traits.wants_parts,
        "supports_typed_content": template.traits.takes_parts,
        "supports_tools": template.traits.has_tools,
        "supports_tool_calls": n_calls > 0,
        "supports_parallel_tool_calls": n_calls > 1,
        "supports_system_role": template.traits.has_system,
        "supports_preserve_reasoning": _keeps_reasoning(template),
        "supports_reasoning_effort": _has_effort(template),
        "supports_object_arguments": n_calls > 0 and not template.traits.wants_text_arguments,
    }


def _n_calls(template: ChatTemplate) -> int:
    """Return how many of two calls in one turn the template renders, by name or id; of one if it refuses two."""
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": {"city": "Paris"}}}
        for name, id in zip(_NAMES, _IDS, strict=True)
    ]
    tools = [_tool(name) for name in _NAMES]
    without = attempt(template, [_USER, _answer("It is 18."), _USER], tools)
    for n in (2, 1):
        results = [{"role": "tool", "content": "18", "tool_call_id": id} for id in _IDS[:n]]
        messages = [_USER, {**_answer(""), "tool_calls": calls[:n]}, *results, _answer("It is 18."), _USER]
        if text := attempt(template, messages, tools):
            pairs = zip(_NAMES, _IDS, strict=True)
            return sum(text.count(name) > without.count(name) or id in text for name, id in pairs)
    return 0


def _keeps_reasoning(template: ChatTemplate) -> bool:
    """Return True if the template renders the reasoning of the turn before the last."""
    answers = [{**_answer("One."), "reasoning": _REASONING}, {**_answer("Two."), "reasoning": "."}]
    messages = [_USER, answers[0], _USER, answers[1], _USER]
    return _REASONING in attempt(template, messages, variables={**reasoning_variables(True), **_KEEP_REASONING})


def _has_effort(template: ChatTemplate) -> bool:
    """Return True if any two reasoning efforts make different prompts."""
    named = [{"reasoning_effort": effort, "reasoning_strength": effort} for effort in _EFFORTS]
    return len({attempt(template, [_USER], variables={**reasoning_variables(True), **effort}) for effort in named}) > 1


def _answer(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _tool(name: str) -> dict[str, Any]:
    properties = {"city": {"type": "string", "description": "A city."}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "Looks up.", "parameters": parameters}}
