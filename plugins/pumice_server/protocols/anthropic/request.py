"""Convert requests of Anthropic's API to messages and options of ``Model.chat``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pumice.plugin.unstable import show_value
from pumice_server.interface import Service, bad_request, generation_options
from pumice_server.protocols.anthropic.bodies import AnthropicMessagesBody, AnthropicPromptBody

logger = logging.getLogger("pumice")

# Claude Code's header of a system prompt has a stamp that changes at every request, and would spoil the cache.
_CHANGING = re.compile(r"\A(x-anthropic-billing-header:[^\n]{0,200}?\bcch=)[0-9a-z]{5};")
_EFFORTS = {"xhigh": "high", "max": "high"}  # of those that templates do not know
_RUN_THERE = ("web_search", "web_fetch", "code_execution", "tool_search", "mcp_toolset")  # tools, by their type
ID_PREFIX = "toolu_"  # of the identifiers of calls in answers
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_messages(body: AnthropicPromptBody) -> list[dict[str, Any]]:
    """Return the messages of a chat for ``Model.chat``. Raises HTTPException."""
    system = _CHANGING.sub(r"\1fffff;", _text(body.system, "system"))
    messages = [{"role": "system", "content": system}] if system else []
    for i, message in enumerate(body.messages):
        messages += _message(message, f"messages[{i}]")
    return messages


def prompt_options(body: AnthropicPromptBody) -> dict[str, Any]:
    """Return the options that the prompt depends on besides messages: tools and reasoning."""
    options: dict[str, Any] = {"tools": list(_tools(body.tools or []))}
    choice = body.tool_choice
    if choice:
        named = choice.get("type") == "tool" and isinstance(choice.get("name"), str)
        said = choice if named else _CHOICES.get(str(choice.get("type")))
        if said is None:
            raise bad_request("tool_choice: expected a type (auto, any, none), or the type tool and a name")
        options["tool_choice"] = said
        options["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use", False)
    thinking = body.thinking
    if thinking is not None:
        options["reasoning"] = thinking.type != "disabled"
        options["reasoning_budget"] = thinking.budget_tokens
    effort = body.output_config.effort if body.output_config else None
    if effort is not None:
        options["reasoning_effort"] = _EFFORTS.get(effort, effort)
    return options


def chat_options(body: AnthropicMessagesBody, service: Service) -> dict[str, Any]:
    """Return the options of ``Model.chat`` for a request."""
    options = {**generation_options(body, service), **prompt_options(body)}
    form = body.output_config.format if body.output_config else None
    form = body.output_format if form is None else form
    if form is not None:
        if form.get("type") != "json_schema":
            raise bad_request("output_config.format: expected the type json_schema and a schema")
        options["response_format"] = {"type": "json_schema", "json_schema": form}
    return options


def _message(given: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return a message, preceded by a message for each tool result in it."""
    role, content = given.get("role"), given.get("content")
    if role not in ("user", "assistant", "system"):
        raise bad_request(f"{where}.role must be user, assistant or system, not {show_value(role)}")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = list(_blocks(content, f"{where}.content"))
    results = [_result(block, place) for place, block in blocks if block["type"] == "tool_result"]
    message: dict[str, Any] = {
        "role": role,
        "content": _joined(blocks),
    }
    thoughts = [_text(block.get("thinking"), place) for place, block in blocks if block["type"] == "thinking"]
    calls = [_call(block) for _, block in blocks if block["type"] == "tool_use"]
    message |= {"reasoning": "\n".join(thoughts)} if thoughts else {}
    message |= {"tool_calls": calls} if calls else {}
    return [*results, message] if message["content"] or calls or thoughts or not results else results


def _blocks(content: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(content, list):
        raise bad_request(f"{where}: expected text or a list of blocks")
    for i, item in enumerate(content):
        block = _object(item, f"{where}[{i}]")
        kind = block.get("type")
        if kind == "redacted_thinking":
            continue
        if kind == "document":
            block, kind = _document(block, f"{where}[{i}]"), "text"
        if kind == "search_result":
            block, kind = _search_result(block, f"{where}[{i}]"), "text"
        if kind not in ("text", "image", "thinking", "tool_use", "tool_result"):
            raise bad_request(f"{where}[{i}].type: {show_value(kind)} is not supported")
        yield f"{where}[{i}]", block


def _content(value: Any, where: str) -> Any:
    """Return text, the text of blocks, or parts if there is an image among the blocks."""
    if isinstance(value, list):
        blocks = list(_blocks(value, where))
        if any(block["type"] == "image" for _, block in blocks):
            return _joined(blocks)
    return _text(value, where)


def _joined(blocks: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    """Return the texts and images among blocks: text, or parts if there is an image."""
    parts = [
        block if block["type"] == "image" else {"type": "text", "text": _text(block.get("text"), place)}
        for place, block in blocks
        if block["type"] in ("text", "image")
    ]
    if any(part["type"] == "image" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _text(value: Any, where: str) -> str:
    """Return text, or the text of blocks."""
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for place, block in _blocks(value, where):
        if block["type"] != "text" or not isinstance(block.get("text"), str):
            raise bad_request(f"{place}: only text is supported here")
        texts.append(block["text"])
    return "\n".join(texts)


def _document(block: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a text document as a text block, with its title first."""
    source = _object(block.get("source"), f"{where}.source")
    if source.get("type") == "text":
        text = source.get("data")
    elif source.get("type") == "content":
        text = _text(source.get("content"), f"{where}.source.content")
    else:
        raise bad_request(
            f"{where}.source.type: only text documents are supported, not {show_value(source.get('type'))}"
        )
    if not isinstance(text, str):
        raise bad_request(f"{where}.source.data: expected text")
    title = _text(block.get("title"), f"{where}.title")
    return {"type": "text", "text": f"{title}\n{text}" if title else text}


def _search_result(block: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a search result as a text block: its title, its source, and its texts. Answers do not cite it."""
    parts = [_text(block.get(name), f"{where}.{name}") for name in ("title", "source", "content")]
    return {"type": "text", "text": "\n".join(part for part in parts if part)}


def _result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = _content(block.get("content"), where)
    return {"role": "tool", "tool_call_id": _id(block.get("tool_use_id", "")), "content": content}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
    return {"id": _id(block.get("id", "")), "type": "function", "function": function}


def _id(given: Any) -> Any:
    """Return the identifier of a call as the model wrote it, without the prefix of answers."""
    return given.removeprefix(ID_PREFIX) if isinstance(given, str) else given


def _tools(given: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the client's tools. Tools that run at Anthropic are left out; agents list both."""
    others: list[str] = []
    for tool in given:
        if str(tool.get("type")).startswith(_RUN_THERE):
            others.append(tool["type"])
            continue
        function = {"name": tool.get("name"), "parameters": tool.get("input_schema") or {}}
        yield {"type": "function", "function": function | {"description": tool.get("description", "")}}
    if others:
        counts = len(others), others[0]
        logger.warning("tools left out, which run at Anthropic: %d, the first of the type %.40s", *counts)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise bad_request(f"{where}: expected an object")
    return value
