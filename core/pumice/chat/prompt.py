"""Messages to the tokens of a prompt: only the template writes special tokens, users' texts are marked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pumice.chat.formats import ChatFormat
from pumice.chat.guard import Guard
from pumice.chat.request import ChatRequest
from pumice.chat.template import ChatTemplate, reasoning_variables
from pumice.errors import RequestError

_END = "\ue000"  # stands where an unfinished answer ends; private use, so that no template looks for it


@dataclass(frozen=True)
class Prompt:
    """``text`` as the template wrote it, its ``tokens``, and ``opening``: what of the text begins the answer."""

    text: str
    tokens: list[int]
    opening: str


def make_prompt(request: ChatRequest, template: ChatTemplate, format: ChatFormat, guard: Guard) -> Prompt:
    """Raises RequestError if the template refuses the messages, or does not show the one to go on with."""
    messages = [dict(message) for message in request.messages]
    if request.continues:
        _leave_unfinished(messages[-1])
    variables = {**reasoning_variables(request.reasoning), **request.template_variables}
    mark, (messages, tools, variables) = guard.mark(messages, list(request.tools), variables)

    def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        return template.render(messages, tools, add_generation_prompt=add_generation_prompt, variables=variables)

    if request.continues:
        text, end, _ = render(messages, False).rpartition(_END)
        if not end:
            raise RequestError("the chat template does not show the last message, so that it cannot go on with it")
        before = render(messages[:-1], False) if messages[:-1] else ""
    else:
        before = render(messages, False)
        text = render(messages, True) if request.add_generation_prompt else before
    opening = text[_common(text, before) :].replace(mark, "")
    if request.reasoning is False and request.add_generation_prompt:
        closing = _close_reasoning(template, format, opening)
        text, opening = text + closing, opening + closing
    return Prompt(text.replace(mark, ""), guard.tokenize(text, mark), opening)


def _common(text: str, before: str) -> int:
    """Characters with which both begin: as a rule all of ``before``."""
    if text.startswith(before):
        return len(before)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, before, strict=False)))


def _leave_unfinished(message: dict[str, Any]) -> None:
    """Let a message end with a mark: its content, or its reasoning if there is no content yet."""
    if message["role"] != "assistant" or message.get("tool_calls"):
        raise RequestError("only a message of the assistant, without tool calls, can be gone on with")
    key = "content" if message["content"] or not message.get("reasoning") else "reasoning"
    message[key] += _END


def _close_reasoning(template: ChatTemplate, format: ChatFormat, opening: str) -> str:
    """What ends the reasoning at once, where the template has no switch for it."""
    start, end = format.reasoning
    if opening.rfind(start) > opening.rfind(end):
        return f"\n{end}{format.after_reasoning}"
    if template.can_switch_reasoning or end in opening or start not in template.source:
        return ""
    return f"{start}\n\n{end}{format.after_reasoning}"
