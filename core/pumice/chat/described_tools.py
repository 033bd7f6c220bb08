"""Tools for templates that show none: described in the system message; calls and their results are texts.

Calls have the form that ``GENERIC`` reads first, which most models have seen in other models' templates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pumice.chat.contents import joined

_HEAD = "You can call these functions. Each line describes one, with a JSON schema of its arguments:"
_RULES = """To call a function, write its name and its arguments as JSON between these tags, and nothing else:
<tool_call>{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}</tool_call>
Its result follows between <tool_response> and </tool_response>. Call a function only if it helps to answer."""


def describe_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return messages that describe ``tools`` first, with earlier calls and results as texts.

    Args:
        messages: result of ``read_messages``.
        tools: result of ``read_tools``; without any, only calls and results change.
    """
    shown: list[Mapping[str, Any]] = [_as_text(message) for message in messages]
    if not tools:
        return shown
    text = "\n".join([_HEAD, *(_json(tool["function"]) for tool in tools), "", _RULES])
    if shown and shown[0]["role"] in ("system", "developer"):
        return [{**shown[0], "content": joined(shown[0]["content"], text)}, *shown[1:]]
    return [{"role": "system", "content": text}, *shown]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without calls, and the result of one as a message of the user."""
    if message["role"] in ("tool", "function"):
        return {"role": "user", "content": joined(joined("<tool_response>", message["content"]), "</tool_response>")}
    written = "\n".join(
        f"<tool_call>{_json(_call(call['function']))}</tool_call>" for call in message.get("tool_calls") or ()
    )
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**plain, "content": joined(message["content"], written)} if written else plain


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
