"""Render messages to a prompt in which only the template writes special tokens; users' texts are marked first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from pumice.architecture import MediaKind
from pumice.chat.contents import with_markers
from pumice.chat.described_tools import describe_tools
from pumice.chat.formats import is_open
from pumice.chat.special_tokens import guard_of
from pumice.chat.template import ChatTemplate, reasoning_variables
from pumice.errors import RequestError

_END = "\ue000"  # marks the end of an unfinished answer; private use, so no template looks for it


@dataclass(frozen=True)
class PromptJob:
    """The input of ``write_prompt`` as plain data.

    Attributes:
        template: template to render.
        spellings: spellings of special tokens that users' texts must not produce.
        marks: start and end mark of reasoning, and the text that follows the end mark.
        messages: result of ``read_messages``.
        tools: result of ``read_tools``.
        variables: additional template variables.
        reasoning: True or False switches reasoning on or off; None leaves it to the template.
        continues: the answer continues the last message.
        add_generation_prompt: end the prompt with the start of the assistant's message.
        media: types of the parts of the messages that are "image", "audio" or "video", in their order.
        marker: text that stands for each of them in the prompt, which no message contains.
        describes_tools: the template shows no tools, so that the system message describes them.
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
    media: Sequence[MediaKind] = ()
    marker: str = ""
    describes_tools: bool = False


@dataclass(frozen=True)
class MarkedPrompt:
    """A rendered prompt.

    Attributes:
        text: prompt in which ``mark`` breaks the spellings of special tokens in users' texts.
        mark: a character that occurs nowhere else in the prompt.
        opening: end of the prompt that already belongs to the answer, without marks.
    """

    text: str
    mark: str
    opening: str


def write_prompt(job: PromptJob) -> MarkedPrompt:
    """Render a prompt.

    A template that writes placeholders gets media as parts, and any other gets markers in texts.

    Raises RequestError if the template refuses the messages, or omits the one to continue, or media.
    """
    if not job.media:
        return _write(job)
    traits = job.template.traits
    placeholders = {
        "image": traits.placeholder,
        "audio": traits.audio_placeholder,
        "video": traits.video_placeholder,
    }
    expected = [placeholders[kind] for kind in job.media]
    if all(expected):  # guarded like a special token: no user's text spells it
        written = _write(replace(job, spellings=(*job.spellings, *dict.fromkeys(expected))))
        pattern = "|".join(map(re.escape, dict.fromkeys(expected)))
        if re.findall(pattern, written.text) == expected:
            return replace(written, text=re.sub(pattern, lambda _: job.marker, written.text))
    texts = [{**message, "content": with_markers(message["content"], job.marker)} for message in job.messages]
    written = _write(replace(job, messages=texts))
    if written.text.count(job.marker) != len(job.media):
        raise RequestError(
            "messages: the chat template leaves out an image, a sound or a video; put them into messages of the user"
        )
    return written


def _write(job: PromptJob) -> MarkedPrompt:
    messages = list(job.messages)
    if job.continues:
        messages[-1] = _unfinished(messages[-1])
    variables = {**reasoning_variables(job.reasoning), **job.variables}
    guard = guard_of(job.spellings, job.template.source)
    mark, (messages, tools, variables) = guard.mark(messages, list(job.tools), variables)
    if job.describes_tools:
        messages, tools = describe_tools(messages, tools), []

    def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        return job.template.render(messages, tools, add_generation_prompt=add_generation_prompt, variables=variables)

    if job.continues:
        text, end, _ = render(messages, False).rpartition(_END)
        if not end:
            raise RequestError(
                "continue_final_message: the chat template omits the last message, so it cannot be continued"
            )
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
    """Return the length of the common prefix, which usually is all of ``before``."""
    if text.startswith(before):
        return len(before)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, before, strict=False)))


def _unfinished(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with a mark at the end of its content, or of its reasoning if the content is empty."""
    if message["role"] != "assistant" or message.get("tool_calls"):
        raise RequestError(
            "continue_final_message: only a message of the assistant without tool calls can be continued"
        )
    if not isinstance(message["content"], str):
        raise RequestError("continue_final_message: a message with images or sound cannot be continued")
    key = "content" if message["content"] or not message.get("reasoning") else "reasoning"
    return {**message, key: message[key] + _END}


def _close_reasoning(job: PromptJob, opening: str) -> str:
    """Return text that ends reasoning at once, for templates without a switch for it."""
    start, end, after = job.marks
    if is_open(opening, start, end):
        return f"\n{end}{after}"
    if job.template.traits.can_switch_reasoning or end in opening or start not in job.template.source:
        return ""
    return f"{start}\n\n{end}{after}"
