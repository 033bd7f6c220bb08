"""Chat messages: validation of input messages and tools, and the typed messages, deltas and completions of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from pumice.chat.bounds import MAX_ARGUMENTS, SizeBudget
from pumice.chat.media import KINDS, take_media
from pumice.chat.mixed import Media
from pumice.chat.pattern import is_name
from pumice.errors import RequestError
from pumice.notebook import facts_line, folded_block, show_count, text_block
from pumice.timings import Timings
from pumice.wording import show_value

#: The finish reasons of the engine, and "tool_calls": the model waits for the results of its calls.
FinishReason = Literal["stop", "length", "tool_calls", "context_full", "timeout", "cancelled"]

MAX_DEPTH = 64  # levels of nested lists and dictionaries in messages and tools
_ROLE = re.compile(r"[A-Za-z_]{1,32}")
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")


@dataclass(frozen=True)
class ToolCall:
    """A tool call that the model requests. Send its result in a message with the role "tool".

    Attributes:
        name: name of the tool.
        arguments: arguments by name.
        id: identifier to repeat as the result's ``tool_call_id``.
        partial: the answer was cut inside the call (``finish_reason`` "length", for example); ``arguments`` has those
            that were complete.
    """

    name: str
    arguments: dict[str, Any]
    id: str = ""
    partial: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the call as in OpenAI's chat completions, with the arguments as JSON text.

        The JSON of a partial call lacks its last brace. Messages of the next turn may contain the result.
        """
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        if self.partial:
            arguments = arguments[:-1] if self.arguments else ""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True)
class Message:
    """A chat message. Messages that ``chat`` returns may be passed on as messages of the next turn.

    Attributes:
        content: text.
        reasoning: text of the reasoning before the content.
        tool_calls: calls that the model requests.
        role: "assistant", or "tool" for the result of a call.
        tool_call_id: identifier of the call whose result this is.
        name: name of the tool whose result this is.
    """

    content: str
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    role: str = "assistant"
    tool_call_id: str = ""
    name: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the message as in OpenAI's chat completions, without empty keys."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id:
            message["tool_call_id"] = self.tool_call_id
        if self.name:
            message["name"] = self.name
        return message

    def _repr_html_(self) -> str:
        arguments = [json.dumps(call.arguments, ensure_ascii=False) for call in self.tool_calls]
        calls = [f"{call.name}({text})" for call, text in zip(self.tool_calls, arguments, strict=True)]
        parts = [folded_block("reasoning", self.reasoning)] if self.reasoning else []
        return "".join([*parts, *map(text_block, [self.content, *calls])])


@dataclass(frozen=True)
class Usage:
    """Token counts of a request.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of the prompt that were read from the KV cache.
        completion_tokens: tokens of the answer, including reasoning.
        reasoning_tokens: tokens of the reasoning.
        audio_tokens: tokens of the prompt that are sounds.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of the prompt and of the answer."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{entry.name: getattr(self, entry.name) + getattr(other, entry.name) for entry in fields(self)})


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of a generated token.

    Attributes:
        token: token id.
        logprob: natural logarithm of its probability.
        top: the most likely tokens at this position with their log-probabilities, most likely first.
    """

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


class ChatDelta(NamedTuple):
    """A part of a streamed answer.

    Attributes:
        content: new text of the content.
        reasoning: new text of the reasoning.
        tool_calls: new tool calls, each of them whole.
        finish_reason: set in the last delta.
        usage: set in the last delta.
        logprobs: log-probabilities of the tokens since the previous delta, if the request asked for them.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    logprobs: Sequence[TokenLogprob] = ()

    @property
    def is_empty(self) -> bool:
        """True if the delta has neither text, calls, log-probabilities nor a finish reason."""
        return not (self.content or self.reasoning or self.tool_calls or self.finish_reason or self.logprobs)

    @property
    def is_text(self) -> bool:
        """True if the delta has content and nothing else."""
        return bool(self.content) and not (self.reasoning or self.tool_calls or self.finish_reason or self.logprobs)

    def followed_by(self, last: ChatDelta) -> ChatDelta:
        """Return this delta and the ``last`` one merged."""
        calls = [*self.tool_calls, *last.tool_calls]
        return last._replace(
            content=self.content + last.content,
            reasoning=self.reasoning + last.reasoning,
            tool_calls=calls,
            logprobs=[*self.logprobs, *last.logprobs],
        )

    def may_join(self, next: ChatDelta) -> bool:
        """Return True if merging this delta and the next keeps the order of reasoning, content and calls."""
        return not (self.tool_calls and (next.content or next.reasoning)) and not (self.content and next.reasoning)


@dataclass(frozen=True)
class ChatCompletion:
    """A complete answer of a chat.

    Attributes:
        message: the assistant's message.
        finish_reason: why the generation ended.
        usage: token counts.
        tokens: token ids of the answer, including marks of the chat format.
        logprobs: log-probability of each generated token, if the request asked for them.
        messages: with ``run_tools`` the calls, their results and the answer, in order; ``usage`` counts all turns.
        timings: seconds and tokens of the prompt and of the answer; with ``run_tools`` those of the last answer.
    """

    message: Message
    finish_reason: FinishReason
    usage: Usage
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None
    messages: list[Message] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)

    def _repr_html_(self) -> str:
        facts = [show_count(self.usage.completion_tokens, "token"), self.finish_reason]
        return self.message._repr_html_() + facts_line(facts)


def read_messages(
    messages: Iterable[Mapping[str, Any] | Message],
    budget: SizeBudget | None = None,
    media: list[Media] | None = None,
) -> list[dict[str, Any]]:
    """Check messages and return them as templates take them.

    Contents become text, arguments of calls dictionaries, and reasoning is moved to the key ``reasoning``. A content
    with media becomes a list of parts, ``{"type": "text", "text": ...}``, ``{"type": "image"}``,
    ``{"type": "audio"}`` and ``{"type": "video"}``; the media are appended to ``media``. Without it they are refused.

    Raises:
        RequestError: a message is invalid; the error names its position.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise RequestError("messages: expected a list of messages, each with a role and a content")
    budget = budget or SizeBudget()
    read = [
        _read_message(take_media(message, f"messages[{i}]", media), f"messages[{i}]", budget)
        for i, message in enumerate(messages)
    ]
    if not read:
        raise RequestError("messages: the list is empty; give at least one message")
    return read


def _read_message(source: Mapping[str, Any] | Message, where: str, budget: SizeBudget) -> dict[str, Any]:
    budget.take(source, where)
    message = dict(source.to_dict() if isinstance(source, Message) else _mapping(source, where))
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise RequestError(f"{where}.role: expected system, user, assistant or tool, not {show_value(role)}")
    if role == "user" and message.get("content") is None:
        raise RequestError(f"{where}.content: missing; give text, or a list of parts")
    refusal = message.pop("refusal", None) if role == "assistant" else None
    content = message.get("content")
    is_empty = content is None or (isinstance(content, str | list | tuple) and not content)
    message["content"] = _read_content(refusal if is_empty else content, f"{where}.content")
    reasoning = [value for key in _REASONING_KEYS if (value := message.pop(key, None))]
    if reasoning:
        message["reasoning"] = _text(reasoning[0], f"{where}.reasoning")
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [
            _read_call(call, f"{where}.tool_calls[{i}]", budget)
            for i, call in enumerate(_list(calls, f"{where}.tool_calls"))
        ]
    check_plain(message, where)
    return message


def _read_content(content: Any, where: str) -> str | list[dict[str, str]]:
    """Return text, the lines of parts of type "text", or the parts if there are media among them."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where}: expected text or a list of parts, not {show_value(content)}")
    parts: list[dict[str, str]] = []
    for i, item in enumerate(content):
        part = _mapping(item, f"{where}[{i}]")
        kind = part.get("type", "text")
        if kind in KINDS:
            parts.append({"type": kind})
        elif kind in ("text", "refusal"):  # OpenAI's refusals are texts of the assistant
            parts.append({"type": "text", "text": _text(part.get(kind), f"{where}[{i}].{kind}")})
        else:
            raise RequestError(
                f"{where}[{i}].type: expected 'text', an image, a sound or a video, not {show_value(kind)}"
            )
    has_media = any(part["type"] != "text" for part in parts)
    return parts if has_media else "\n".join(part["text"] for part in parts)


def _read_call(value: Any, where: str, budget: SizeBudget) -> dict[str, Any]:
    if isinstance(value, ToolCall):
        value = value.to_dict()
    call = _mapping(value, where)
    function = _mapping(call.get("function"), f"{where}.function")
    name = _text(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        if len(arguments) > MAX_ARGUMENTS:
            problem = f"{len(arguments)} characters, but the limit is {MAX_ARGUMENTS}"
            raise RequestError(f"{where}.function.arguments: {problem}")
        arguments = _parse(arguments, f"{where}.function.arguments")
        budget.take(arguments, f"{where}.function.arguments")
    arguments = dict(_mapping(arguments, f"{where}.function.arguments"))
    identifier = _text(call.get("id") or "", f"{where}.id")
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parse(text: str, where: str) -> Any:
    """Parse JSON; what ``ToolCall.to_dict`` writes of a partial call, without the last brace, is accepted too."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        with suppress(ValueError, RecursionError):
            if partial := json.loads(text + "}"):
                return partial
        raise RequestError(f"{where}: not valid JSON: {error}") from None


def read_tools(tools: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Check tools and return them as in OpenAI's chat completions.

    A bare function (name, description, parameters) is accepted as a tool.

    Raises:
        RequestError: a tool is invalid; the error names its position.
    """
    read: dict[str, dict[str, Any]] = {}
    if tools is not None and not isinstance(tools, Iterable):
        raise RequestError(f"tools: expected a list of tools, not {show_value(tools)}")
    for i, item in enumerate(tools or ()):
        where = f"tools[{i}]"
        tool = dict(_mapping(item, where))
        if tool.get("type", "function") != "function":
            raise RequestError(f"{where}.type: only 'function' is supported, not {show_value(tool['type'])}")
        function = _mapping(tool["function"], f"{where}.function") if "function" in tool else tool
        name = _text(function.get("name"), f"{where}.function.name")
        if not is_name(name):
            raise RequestError(
                f"{where}.function.name: expected only letters, digits and _ - . / :, not {show_value(name)}"
            )
        if name in read:
            raise RequestError(f"{where}.function.name: {name!r} occurs twice; names must be unique")
        _mapping(function.get("parameters") or {}, f"{where}.function.parameters")
        check_plain(function, where)
        read[name] = {"type": "function", "function": dict(function)}
    return list(read.values())


def check_plain(value: Any, where: str, depth: int = 0) -> None:
    """Raise RequestError unless ``value`` consists of JSON's types, the only ones that templates receive."""
    if depth > MAX_DEPTH:
        raise RequestError(f"{where}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise RequestError(f"{where}: expected text as a key, not {show_value(key)}")
            check_plain(item, where, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_plain(item, where, depth + 1)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise RequestError(f"{where}: an integer has more than 64 bits")
    elif not (value is None or isinstance(value, str | int | float)):
        raise RequestError(f"{where}: a value of type {type(value).__name__} cannot be represented in JSON")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{where}: expected an object, not {show_value(value)}")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise RequestError(f"{where}: expected a list, not {show_value(value)}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where}: expected text, not {show_value(value)}")
    return value
