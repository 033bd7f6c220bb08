"""OpenAI's responses as the chat layer takes them: items of the input become messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.limits import MAX_MESSAGES
from pumice_server.openai_chat import template_options
from pumice_server.options import generation_options
from pumice_server.service import Service

logger = logging.getLogger("pumice")

_REFUSED = ("background", "conversation", "prompt")
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


def read_input(body: Body, before: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The messages of the input, after ``before``: those of the response that this one follows."""
    given = body.first("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or len(items) > MAX_MESSAGES:
        raise bad_request(f"input must be text, or a list of 1 to {MAX_MESSAGES} items")
    messages = [dict(message) for message in before]
    for i, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise bad_request(f"input[{i}]: expected an object")
        _add(messages, item, f"input[{i}]")
    return [message for message in messages if not _is_only_reasoning(message)]


def with_instructions(body: Body, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Instructions are of one response, and not of those that follow it."""
    instructions = body.get("instructions", str, "")
    return [{"role": "system", "content": instructions}, *messages] if instructions else messages


def prompt_options(body: Body) -> dict[str, Any]:
    """What the prompt depends on beside the messages: tools, and whether the model reasons."""
    options: dict[str, Any] = {"tools": list(_tools(body.get("tools", list, []))), **template_options(body)}
    options |= {name: body.fields[name] for name in ("tool_choice", "parallel_tool_calls") if name in body.fields}
    effort = body.get("reasoning", dict, {}).get("effort")
    if effort is not None:
        options["reasoning_effort"] = effort
    return options


def response_options(body: Body, service: Service) -> dict[str, Any]:
    """What ``Model.chat`` takes beside messages."""
    for name in _REFUSED:
        if body.first(name):
            raise bad_request(f"{name} is not supported")
    fields = {**body.fields, "max_tokens": body.first("max_output_tokens")}
    options = {**generation_options(Body(fields), service), **prompt_options(body)}
    form = body.get("text", dict, {}).get("format")
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    if form is not None:
        options["response_format"] = form
    return options


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    """Append an item, or add it to the message of the assistant that it belongs to."""
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise bad_request(f"{where}.role: expected text")
        message = {"role": role, "content": _text(item.get("content"), f"{where}.content")}
        last = _open_turn(messages) if role == "assistant" else None
        if last is not None and not last["content"]:
            last["content"] = message["content"]
        else:
            messages.append(message)
    elif kind == "reasoning":
        text = _text(item.get("content") or item.get("summary") or [], f"{where}.content")
        messages.append({"role": "assistant", "content": "", "reasoning": text})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id", ""), "type": "function", "function": function}
        last = _open_turn(messages)
        if last is None:
            last = {"role": "assistant", "content": ""}
            messages.append(last)
        last.setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = _text(item.get("output"), f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
    else:
        raise bad_request(f"{where}.type: {kind!r:.60} is not understood")


def _is_only_reasoning(message: Mapping[str, Any]) -> bool:
    """Whether nothing followed the reasoning of a turn."""
    return "reasoning" in message and not message["content"] and not message.get("tool_calls")


def _open_turn(messages: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The message of the assistant that the last items made, if they did."""
    return messages[-1] if messages and messages[-1]["role"] == "assistant" else None


def _text(value: Any, where: str) -> str:
    """Text, or a list of parts of it."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_request(f"{where}: expected text or a list of parts")
    texts = []
    for part in value:
        if not isinstance(part, Mapping) or part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
            raise bad_request(f"{where}: only parts of text are understood")
        texts.append(part["text"])
    return "\n".join(texts)


def _tools(given: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The functions; tools that run at OpenAI, as agents list them beside their own, are left out."""
    others: list[str] = []
    for i, tool in enumerate(given):
        if not isinstance(tool, Mapping) or not isinstance(tool.get("type"), str):
            raise bad_request(f"tools[{i}]: expected an object with a type")
        if tool["type"] == "function":
            yield {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        else:
            others.append(tool["type"])
    if others:
        logger.warning("tools left out, which run at OpenAI: %d, the first of the type %.40s", len(others), others[0])
