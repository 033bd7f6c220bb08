"""Convert requests for OpenAI's responses to messages and options of ``Model.chat``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pumice.plugin.unstable import show_value
from pumice_server.interface import Service, bad_request, generation_options, template_options
from pumice_server.protocols.openai.bodies import ResponseBody

logger = logging.getLogger("pumice")

_TEXTS = {"refusal": "refusal"} | dict.fromkeys(
    ("input_text", "output_text", "text", "reasoning_text", "summary_text"), "text"
)  # keys of the texts of parts, by type


def read_input(
    given: str | Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the messages of the input, after ``before``: the messages of the response that this one follows."""
    items: Sequence[Mapping[str, Any]] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [dict(message) for message in before]
    for i, item in enumerate(items):
        _add(messages, item, f"input[{i}]")
    return [message for message in messages if not _is_only_reasoning(message)]


def with_instructions(body: ResponseBody, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the instructions first. Instructions are not stored for later responses."""
    return [{"role": "system", "content": body.instructions}, *messages] if body.instructions else messages


def prompt_options(body: ResponseBody) -> dict[str, Any]:
    """Return the options that the prompt depends on besides messages and tools."""
    options = template_options(body)
    choices = {"tool_choice": body.tool_choice, "parallel_tool_calls": body.parallel_tool_calls}
    choices["reasoning_effort"] = body.reasoning.effort if body.reasoning else None
    options |= {name: value for name, value in choices.items() if value is not None}
    return options


def response_options(body: ResponseBody, service: Service) -> dict[str, Any]:
    """Return the options of ``Model.chat`` for a request."""
    options = {**generation_options(body, service), **prompt_options(body)}
    form = (body.text or {}).get("format")
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    if form is not None:
        options["response_format"] = form
    return options


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    """Append an item, or add it to the assistant's message that it belongs to."""
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise bad_request(f"{where}.role: expected text")
        message = {"role": role, "content": _content(item.get("content"), f"{where}.content")}
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
        output = _content(item.get("output"), f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
    else:
        raise bad_request(f"{where}.type: {show_value(kind)} is not supported")


def _is_only_reasoning(message: Mapping[str, Any]) -> bool:
    """Return True if nothing followed the reasoning of a turn."""
    return "reasoning" in message and not message["content"] and not message.get("tool_calls")


def _open_turn(messages: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the assistant's message that the last items built, if any."""
    return messages[-1] if messages and messages[-1]["role"] == "assistant" else None


def _content(value: Any, where: str) -> Any:
    """Return text, the text of parts, or the parts if there is an image or a sound among them."""
    media = [_is_media(part) for part in value] if isinstance(value, list) else []
    if not any(media):
        return _text(value, where)
    pairs = zip(value, media, strict=True)
    return [part if is_media else {"type": "text", "text": _text([part], where)} for part, is_media in pairs]


def _is_media(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("input_image", "input_audio", "input_video")


def _text(value: Any, where: str) -> str:
    """Return text, or the text of parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_request(f"{where}: expected text or a list of parts")
    texts = []
    for part in value:
        text = part.get(_TEXTS.get(str(part.get("type")), "")) if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            raise bad_request(f"{where}: only parts with text, images and sounds are supported")
        texts.append(text)
    return "\n".join(texts)


def functions(given: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the functions. Tools that run at OpenAI are left out, and MCP servers; agents list both."""
    others: list[str] = []
    for i, tool in enumerate(given):
        if not isinstance(tool.get("type"), str):
            raise bad_request(f"tools[{i}]: expected an object with a type")
        if tool["type"] == "function":
            yield {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        elif tool["type"] != "mcp":
            others.append(tool["type"])
    if others:
        logger.warning("tools left out, which run at OpenAI: %d, the first of the type %.40s", len(others), others[0])
