"""Messages to the text of a prompt: only the template writes special tokens, users' texts are marked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from pumice.chat.formats import is_open
from pumice.chat.guard import guard_of
from pumice.chat.template import ChatTemplate, reasoning_variables
from pumice.errors import RequestError

_END = "\ue000"  # stands where an unfinished answer ends; private use, so that no template looks for it


@dataclass(frozen=True)
class PromptJob:
    """What a prompt is made from, as plain data.

    Attributes:
        messages, tools: as ``read_messages`` and ``read_tools`` give them.
        spellings: of special tokens, which users' texts do not get to write.
        continues: the answer goes on with the last message.
        reasoning: True or False switch it on or off; ``marks`` are what begins and ends it, and what follows its end.
    """

    template: ChatTemplate
    spellings: tuple[str, ...]
    marks: tuple[str, str, str]
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning: bool | None = None
    continues: bool = False
    add_generation_prompt: bool = True


@dataclass(frozen=True)
class MarkedPrompt:
    """A prompt's ``text``, in which ``mark`` breaks what would be read as special tokens.

    ``opening`` is what of it begins the answer, without marks.
    """

    text: str
    mark: str
    opening: str


def write_prompt(job: PromptJob) -> MarkedPrompt:
    """Raises RequestError if the template refuses the messages, or does not show the one to go on with."""
    messages = list(job.messages)
    if job.continues:
        messages[-1] = _unfinished(messages[-1])
    variables = {**reasoning_variables(job.reasoning), **job.variables}
    guard = guard_of(job.spellings, job.template.source)
    mark, (messages, tools, variables) = guard.mark(messages, list(job.tools), variables)

    def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        return job.template.render(messages, tools, add_generation_prompt=add_generation_prompt, variables=variables)

    if job.continues:
        text, end, _ = render(messages, False).rpartition(_END)
        if not end:
            raise RequestError("the chat template does not show the last message, so that it cannot go on with it")
        before = render(messages[:-1], False) if messages[:-1] else ""
    else:
        before = render(messages, False)
        text = render(messages, True) if job.add_generation_prompt else before
    opening = text[_common(text, before) :].replace(mark, "")
    if job.reasoning is False and job.add_generation_prompt:
        closing = _close_reasoning(job, opening)
        text, opening = text + closing, opening + closing
    return MarkedPrompt(guard.needed(text, mark), mark, opening)


def _common(text: str, before: str) -> int:
    """Characters with which both begin: as a rule all of ``before``."""
    if text.startswith(before):
        return len(before)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, before, strict=False)))


def _unfinished(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message, ending with a mark: its content, or its reasoning if there is no content yet."""
    if message["role"] != "assistant" or message.get("tool_calls"):
        raise RequestError("only a message of the assistant, without tool calls, can be gone on with")
    key = "content" if message["content"] or not message.get("reasoning") else "reasoning"
    return {**message, key: message[key] + _END}


def _close_reasoning(job: PromptJob, opening: str) -> str:
    """What ends the reasoning at once, where the template has no switch for it."""
    start, end, after = job.marks
    if is_open(opening, start, end):
        return f"\n{end}{after}"
    if job.template.traits.can_switch_reasoning or end in opening or start not in job.template.source:
        return ""
    return f"{start}\n\n{end}{after}"
