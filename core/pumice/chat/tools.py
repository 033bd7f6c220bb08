"""Tools that Pumice runs: Python functions, and ``Tool`` objects with a schema of their own."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from pumice.chat.messages import Message, ToolCall
from pumice.chat.signatures import read_signature
from pumice.errors import RequestError
from pumice.wording import show_python, show_value

MAX_RESULT = 32_768  # characters of a result that the model reads
MAX_TURNS = 10  # answers with calls to one message
REFUSED = "Error: the user refused this call"
_PROBLEM_CHARACTERS = 2000
_ARGUMENT_HEADINGS = ("args:", "arguments:", "parameters:", "params:")
_ARGUMENT = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_REST_ARGUMENT = re.compile(r":param\s+(?:\w+\s+)?(\w+)\s*:\s*(.*)")
_HEADING = re.compile(r"[A-Z]\w+( \w+)?:$")

Function = Callable[..., Any]


class ToolError(Exception):
    """A failure that a tool reports; the model reads the message."""


@dataclass(frozen=True)
class Tool:
    """A tool that Pumice can run.

    Attributes:
        name: Name by which the model calls the tool.
        description: Purpose of the tool, for the model.
        parameters: JSON schema of the arguments.
        run: Function that takes the arguments as keywords. It may return an awaitable, for ``achat``.
        is_async: True if ``run`` is called in the event loop; otherwise ``achat`` calls it in a thread.
        arun: Function that ``achat`` calls in the event loop instead of ``run``; it returns an awaitable.

    Raises:
        RequestError: An attribute has the wrong type.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Any]
    is_async: bool = False
    arun: Callable[..., Awaitable[object]] | None = None

    def __post_init__(self) -> None:
        for field in ("name", "description"):
            if not isinstance(value := getattr(self, field), str):
                raise RequestError(f"tools: {field} must be a string, not {show_python(value)}")
        if not isinstance(self.parameters, Mapping):
            raise RequestError(
                f"tools: {self.name}: parameters must be a JSON schema, not {show_python(self.parameters)}"
            )
        if not callable(self.run):
            raise RequestError(f"tools: {self.name}: run must be a function, not {show_python(self.run)}")

    @classmethod
    def of(cls, function: Function) -> Tool:
        """Return the tool of a Python function: its schema is made from annotations, defaults and docstring.

        Raises:
            RequestError: The function has no name or no signature, or an annotation has no JSON schema.
        """
        name = getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise RequestError(f"tools: {show_python(function)} has no name; define it with def, or use pumice.Tool")
        names = _parameter_names(function, name)
        description, arguments = _read_docstring(inspect.getdoc(function) or "", names)
        try:
            parameters, check = read_signature(function, name, arguments)
        except Exception as error:  # evaluating an annotation may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise RequestError(f"tools: {name}: no schema can be made of its signature: {reason:.300}") from None

        def run(**arguments: Any) -> Any:
            try:
                converted = check(arguments)
            except ValueError as error:
                raise ToolError(f"wrong arguments for {name}: {error}") from None
            return function(**converted)

        return cls(name, description, parameters, run, inspect.iscoroutinefunction(function))

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as OpenAI's chat completions describe it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    @property
    def needs_achat(self) -> bool:
        """True if ``run`` is known to return an awaitable, which ``chat`` cannot wait for."""
        return self.is_async or inspect.iscoroutinefunction(self.run)

    def answer(self, call: ToolCall) -> str:
        """Run a call and return its result as text, or the error that the tool raised.

        Raises:
            RequestError: The tool returned an awaitable.
        """
        result = self._start(call)
        return result if isinstance(result, str) else refuse_awaitable(self.name, result)

    async def aanswer(self, call: ToolCall) -> str:
        """Like ``answer``, for a coroutine: await what the tool returns. A function that is not async runs in a thread.

        Raises:
            asyncio.CancelledError: The task was cancelled, or the tool raised it.
        """
        import asyncio  # workers that render templates start without it

        in_loop = self.is_async or self.arun is not None
        result = self._start(call, self.arun) if in_loop else await asyncio.to_thread(self._start, call)
        if isinstance(result, str):
            return result
        try:
            return result_text(await result)
        except (Exception, SystemExit) as error:
            return problem_text(error)

    def _start(self, call: ToolCall, function: Function | None = None) -> str | Awaitable[object]:
        """Call ``run``, or ``function``, and return its result as text, or an awaitable; an exception becomes text."""
        from asyncio import CancelledError

        try:
            value = (function or self.run)(**call.arguments)
            return value if inspect.isawaitable(value) else result_text(value)
        except (Exception, SystemExit, CancelledError) as error:
            return problem_text(error)


def list_tools(tools: object) -> list[object]:
    """Return the tools of a request, with a ``Tool`` in place of each function; descriptions stay as they are.

    Raises:
        RequestError: ``tools`` is not a list, or no tool can be made of a function.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise RequestError(f"tools: expected a list of tools, not {show_value(tools)}")
    return [Tool.of(tool) if callable(tool) and not isinstance(tool, Mapping | Tool) else tool for tool in tools]


def refuse_awaitable(name: str, value: Awaitable[object]) -> NoReturn:
    """Close or cancel an awaitable that a function returned to ``chat``, and raise RequestError."""
    end = getattr(value, "close", None) or getattr(value, "cancel", None)
    if end:
        end()
    raise RequestError(f"{name}: an async function needs achat instead of chat")


def result_message(call: ToolCall, text: str, max_result: int = MAX_RESULT) -> Message:
    """Return the message that answers a call: at most ``max_result`` characters, and a line that says what was cut.

    U+FFFD replaces lone surrogates, which no tokenizer accepts.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if len(text) > max_result:
        text = f"{text[:max_result]}\n[cut: the result has {len(text)} characters, {max_result} are shown]"
    return Message(text, role="tool", tool_call_id=call.id, name=call.name)


def room_for_result(n_ctx: int, n_used: int, n_calls: int) -> int:
    """Return the maximum tokens of each result of an answer with ``n_calls`` calls.

    Half of the free context is left to the next answer, and to what templates add to results and escape in them.
    """
    return max(n_ctx - n_used, 0) // 2 // n_calls


def fitting_result(call: ToolCall, text: str, max_tokens: int, tokenize: Callable[[str], Sequence[int]]) -> Message:
    """Return the message that answers a call: at most ``MAX_RESULT`` characters and ``max_tokens`` tokens of it."""
    message = result_message(call, text)
    shown = message.content[:MAX_RESULT]
    while shown and (n_tokens := len(tokenize(shown))) > max_tokens:
        shown = shown[: min(len(shown) * max_tokens // n_tokens, len(shown) - 1)]
    return message if shown == message.content[:MAX_RESULT] else result_message(call, text, len(shown))


def later_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ after the first answer: no call is required, no message is continued."""
    later: dict[str, Any] = {"continue_final_message": None}
    choice = options.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        later["tool_choice"] = {"type": "allowed_tools", "allowed_tools": {**inner, "mode": "auto"}}
    elif choice is not None:
        later["tool_choice"] = "auto"
    return later


def result_text(value: object) -> str:
    """Return a result as the model reads it: text as it is, anything else as JSON, or as ``str`` of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError):  # a lone surrogate in a text, or keys that JSON lacks
        plain = value if isinstance(value, (dict, list)) else _plain(value)
    try:
        return json.dumps(plain, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _plain(value: object) -> object:
    """Return an object that JSON lacks as plain values if it is a model of pydantic, or as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None and not isinstance(value, type) else str(value)


def problem_text(error: BaseException) -> str:
    """Return the text of a tool's exception for the model."""
    text = str(error) if isinstance(error, (ToolError, ValueError)) else f"{type(error).__name__}: {error}"
    return f"Error: {text or type(error).__name__}"[:_PROBLEM_CHARACTERS]


def _parameter_names(function: Function, name: str) -> list[str]:
    """Return the names of a function's parameters. Raises RequestError if one cannot be given by name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RequestError(f"tools: {name}: no schema can be made of its signature: {error!s:.300}") from None
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RequestError(f"tools: {name}: the parameter {parameter} cannot be given by name; remove it")
    return list(parameters)


def _read_docstring(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the description of a function, and those of its arguments (sections ``Args:``, or ``:param name:``).

    Args:
        text: Docstring.
        names: Parameters of the function. A line such as ``note: text`` continues the argument before it.
    """
    description: list[str] = []
    arguments: dict[str, str] = {}
    section, current = "", ""
    indent = -1  # of the section's first line; lines that are indented further continue an argument
    for line in text.splitlines():
        stripped = line.strip()
        if (field := _REST_ARGUMENT.fullmatch(stripped)) and field[1] in names:
            section, current = "rest", field[1]
            arguments[current] = field[2]
        elif stripped.startswith(":"):
            section = "other"
        elif not line.startswith(" ") and _HEADING.match(stripped):
            section = "args" if stripped.lower() in _ARGUMENT_HEADINGS else "other"
            indent = -1
        elif not section:
            description.append(line)
        elif stripped and section in ("args", "rest"):
            n_spaces = len(line) - len(line.lstrip())
            indent = n_spaces if indent < 0 else indent
            field = _ARGUMENT.fullmatch(stripped) if section == "args" and n_spaces == indent else None
            if field and field[1] in names:
                current = field[1]
                arguments[current] = field[2]
            elif current:
                arguments[current] = f"{arguments[current]} {stripped}".strip()
    return "\n".join(description).strip(), arguments
