"""What a chat is made of: messages as they are given, and typed messages, deltas and completions as they come back."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pumice.chat.bounds import MAX_ARGUMENTS, Budget
from pumice.chat.pattern import is_name
from pumice.errors import RequestError

#: As of a sequence in the engine, and tool_calls: the model waits for the results of its calls.
FinishReason = Literal["stop", "length", "tool_calls", "context_full", "timeout", "cancelled"]

MAX_DEPTH = 64  # levels of lists and dictionaries in what is given
_ROLE = re.compile(r"[A-Za-z_]{1,32}")
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for. The result goes back in a message of the role "tool".

    ``partial``: the answer was cut in the call (``finish_reason`` "length", say); ``arguments`` has what was complete.
    """

    name: str
    arguments: dict[str, Any]
    id: str = ""
    partial: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As chat completions have it, with the arguments as JSON text; that of a partial call is not closed.

        A message of the next turn may have it so.
        """
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        if self.partial:
            arguments = arguments[:-1] if self.arguments else ""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True)
class Message:
    """A message of a chat; it can be given back as it is, among the messages of the next turn."""

    content: str
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    role: str = "assistant"

    def to_dict(self) -> dict[str, Any]:
        """As chat completions have it, with the key ``reasoning_content``; keys without a value are left out."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class Usage:
    """Tokens of the prompt, how many of them were in the cache, and of the answer, reasoning among them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, and ``top``: the likeliest tokens, in order, with theirs."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


class ChatDelta(NamedTuple):
    """A part of an answer; tool calls come whole. The last has a ``finish_reason`` and the ``usage``.

    ``logprobs``, where they were asked for, are of the tokens that came since the delta before.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    logprobs: Sequence[TokenLogprob] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.reasoning or self.tool_calls or self.finish_reason or self.logprobs)

    @property
    def is_text(self) -> bool:
        """Whether it is a part of the content, and nothing else."""
        return bool(self.content) and not (self.reasoning or self.tool_calls or self.finish_reason or self.logprobs)

    def followed_by(self, last: ChatDelta) -> ChatDelta:
        """This and the last one as one."""
        calls = [*self.tool_calls, *last.tool_calls]
        return last._replace(
            content=self.content + last.content,
            reasoning=self.reasoning + last.reasoning,
            tool_calls=calls,
            logprobs=[*self.logprobs, *last.logprobs],
        )

    def may_join(self, next: ChatDelta) -> bool:
        """Whether this and the next one as one tell the same: reasoning, then content, then calls."""
        return not (self.tool_calls and (next.content or next.reasoning)) and not (self.content and next.reasoning)


@dataclass(frozen=True)
class ChatCompletion:
    """An answer as a whole. ``tokens`` are those of the answer, marks of the chat format among them.

    ``logprobs`` has one for each token that the model chose, where they were asked for.
    """

    message: Message
    finish_reason: FinishReason
    usage: Usage
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None


def read_messages(
    messages: Iterable[Mapping[str, Any] | Message], budget: Budget | None = None
) -> list[dict[str, Any]]:
    """Messages as templates take them, checked: contents are text, arguments dictionaries.

    Reasoning is under the key ``reasoning``. Raises RequestError, which says which message is wrong.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise RequestError("messages: expected a list of messages, each with a role and a content")
    budget = budget or Budget()
    read = [_read_message(message, f"messages[{i}]", budget) for i, message in enumerate(messages)]
    if not read:
        raise RequestError("messages: the list is empty; give at least one")
    return read


def _read_message(given: Mapping[str, Any] | Message, where: str, budget: Budget) -> dict[str, Any]:
    budget.take(given, where)
    message = dict(given.to_dict() if isinstance(given, Message) else _mapping(given, where))
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise RequestError(f"{where}.role: expected system, user, assistant or tool, not {shown(role)}")
    if role == "user" and message.get("content") is None:
        raise RequestError(f"{where}.content: missing; give text, or a list of parts")
    message["content"] = _read_content(message.get("content"), f"{where}.content")
    found = [value for key in _REASONING_KEYS if (value := message.pop(key, None))]
    if found:
        message["reasoning"] = _text(found[0], f"{where}.reasoning")
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [
            _read_call(call, f"{where}.tool_calls[{i}]", budget)
            for i, call in enumerate(_list(calls, f"{where}.tool_calls"))
        ]
    check_plain(message, where)
    return message


def _read_content(content: Any, where: str) -> str:
    """Text, or parts of type "text", which become its lines."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where}: expected text or a list of parts, not {shown(content)}")
    texts = []
    for i, given in enumerate(content):
        part = _mapping(given, f"{where}[{i}]")
        if part.get("type", "text") != "text":
            raise RequestError(f"{where}[{i}].type: only text is understood, not {shown(part.get('type'))}")
        texts.append(_text(part.get("text"), f"{where}[{i}].text"))
    return "\n".join(texts)


def _read_call(given: Any, where: str, budget: Budget) -> dict[str, Any]:
    if isinstance(given, ToolCall):
        given = given.to_dict()
    call = _mapping(given, where)
    function = _mapping(call.get("function"), f"{where}.function")
    name = _text(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        if len(arguments) > MAX_ARGUMENTS:
            size = f"{len(arguments)} characters, at most {MAX_ARGUMENTS} are taken"
            raise RequestError(f"{where}.function.arguments: {size}")
        arguments = _parse(arguments, f"{where}.function.arguments")
        budget.take(arguments, f"{where}.function.arguments")
    arguments = dict(_mapping(arguments, f"{where}.function.arguments"))
    identifier = _text(call.get("id") or "", f"{where}.id")
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parse(text: str, where: str) -> Any:
    """JSON, or what ``ToolCall.to_dict`` writes of a partial call, which lacks the last brace."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        with suppress(ValueError, RecursionError):
            if partial := json.loads(text + "}"):
                return partial
        raise RequestError(f"{where}: not valid JSON: {error}") from None


def read_tools(tools: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Tools as chat completions have them; a bare function (name, description, parameters) is one too.

    Raises RequestError, which says which tool is wrong.
    """
    read: dict[str, dict[str, Any]] = {}
    if tools is not None and not isinstance(tools, Iterable):
        raise RequestError(f"tools: expected a list of tools, not {shown(tools)}")
    for i, given in enumerate(tools or ()):
        where = f"tools[{i}]"
        tool = dict(_mapping(given, where))
        if tool.get("type", "function") != "function":
            raise RequestError(f"{where}.type: only functions are understood, not {shown(tool['type'])}")
        function = _mapping(tool["function"], f"{where}.function") if "function" in tool else tool
        name = _text(function.get("name"), f"{where}.function.name")
        if not is_name(name):
            raise RequestError(
                f"{where}.function.name: expected letters, digits and _ - . / : alone, not {shown(name)}"
            )
        if name in read:
            raise RequestError(f"{where}.function.name: {name!r} is there twice")
        _mapping(function.get("parameters") or {}, f"{where}.function.parameters")
        check_plain(function, where)
        read[name] = {"type": "function", "function": dict(function)}
    return list(read.values())


def check_plain(value: Any, where: str, depth: int = 0) -> None:
    """Raise RequestError unless ``value`` is of texts, numbers, lists and dictionaries, as JSON has them.

    A template gets to see nothing else.
    """
    if depth > MAX_DEPTH:
        raise RequestError(f"{where}: nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise RequestError(f"{where}: a key is {shown(key)}, not text")
            check_plain(item, where, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_plain(item, where, depth + 1)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise RequestError(f"{where}: a whole number has more than 64 bits")
    elif not (value is None or isinstance(value, str | int | float)):
        raise RequestError(f"{where}: {type(value).__name__} is nothing that JSON has")


def shown(value: Any) -> str:
    """A value in a message, in a few words, however large or deep it is."""
    return reprlib.repr(value)[:60]


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{where}: expected an object, not {shown(value)}")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise RequestError(f"{where}: expected a list, not {shown(value)}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where}: expected text, not {shown(value)}")
    return value
