"""Selection of a model's chat template, and adaptation of messages to what it supports."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pumice.chat.builtin import BUILTIN
from pumice.chat.contents import joined
from pumice.errors import NoChatTemplateError, RequestError
from pumice.wording import unknown_name

KEY = "tokenizer.chat_template"  # GGUF metadata key; variants are KEY.NAME

_OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})


@dataclass(frozen=True)
class Traits:
    """The traits of a template, detected by ``find_traits``.

    Attributes:
        has_system: messages with the role "system" are rendered.
        has_tools: tools are rendered.
        wants_parts: the content of a message must be a list of parts.
        takes_parts: the content of a message may be a list of parts.
        wants_text_arguments: the arguments of a call must be JSON text.
        can_switch_reasoning: ``enable_thinking`` or ``thinking`` changes the prompt.
        placeholder: text that it writes for a part of type "image"; empty if it writes none that is known.
        audio_placeholder, video_placeholder: the same for parts of the types "audio" and "video".
    """

    has_system: bool = True
    has_tools: bool = False
    wants_parts: bool = False
    takes_parts: bool = False
    wants_text_arguments: bool = False
    can_switch_reasoning: bool = False
    placeholder: str = ""
    audio_placeholder: str = ""
    video_placeholder: str = ""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template, rendered as transformers does after messages are adapted to its traits.

    A system message is merged into the next one if the template has no system role; arguments become JSON text and
    contents lists of parts if it wants them. If the template refuses the messages, it is tried again without system
    messages after the first others, and without two user's messages in a row, both of which agents send. Methods that
    render compile the source, so only workers call them.

    Attributes:
        source: Jinja source.
        bos: spelling of the beginning-of-sequence token.
        eos: spelling of the end-of-sequence token.
        traits: detected traits.
    """

    source: str
    bos: str = ""
    eos: str = ""
    traits: Traits = Traits()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the rendered prompt.

        Args:
            messages: result of ``read_messages``.
            tools: result of ``read_tools``.
            add_generation_prompt: end the prompt with the start of the assistant's message.
            variables: additional template variables, such as ``enable_thinking``; those that are None are left out.

        Raises:
            ModelError: the source is not valid Jinja.
            RequestError: the template refuses the messages, or a variable has a reserved name.
        """
        own = _OWN.intersection(variables or ())
        if own:
            raise RequestError(f"template_variables: {min(own)!r} is reserved; remove it")
        renamed = self._with_known_roles(messages)
        try:
            return self._render_merged(renamed, tools, add_generation_prompt, variables)
        except RequestError:
            strict = in_strict_order(renamed)
            if strict == renamed:
                raise
            with contextlib.suppress(RequestError):
                return self._render_merged(strict, tools, add_generation_prompt, variables)
            raise

    def _render_merged(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None,
    ) -> str:
        adapted = [self._adapt(message) for message in self._merge_system(messages)]
        return self.render_raw(adapted, tools, add_generation_prompt, variables)

    def render_raw(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Like ``render``, without adapting the messages."""
        from pumice.chat.jinja import compiled

        context = {
            **{name: value for name, value in (variables or {}).items() if value is not None},
            "bos_token": self.bos,
            "eos_token": self.eos,
            **(_firefunction(tools) if " functools[" in self.source else {}),
            "messages": messages,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return compiled(self.source).render(context)

    @property
    def reasoning_key(self) -> str:
        """The key under which the template looks for a message's reasoning."""
        keys = ("reasoning_content", "reasoning", "thinking")
        return next((key for key in keys if re.search(rf"\b{key}\b", self.source)), keys[0])

    def _with_known_roles(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        renamed = [dict(message) for message in messages]
        for message in renamed:
            if message["role"] == "developer" and "developer" not in self.source:
                message["role"] = "system"
        return renamed

    def _merge_system(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        merged = [dict(message) for message in messages]
        if merged[0]["role"] == "system" and len(merged) > 1 and not self.traits.has_system:
            merged[0]["content"] = joined(merged.pop(0)["content"], merged[0]["content"])
        return merged

    def _adapt(self, message: dict[str, Any]) -> dict[str, Any]:
        message = copy.deepcopy(message)
        if "reasoning" in message:
            message[self.reasoning_key] = message.pop("reasoning")
        for call in message.get("tool_calls", ()):
            if self.traits.wants_text_arguments:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        if self.traits.wants_parts and isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message


class ChatTemplates:
    """The templates that a model can use: those of its file, the built-in ones, or one given as source."""

    def __init__(self, metadata: Mapping[str, Any], chosen: str | None = None) -> None:
        """``chosen``: name of a variant in the file or of a built-in template, or the source of a template."""
        self._sources = _sources(metadata)
        self._chosen = chosen

    def source(self, chosen: str | None = None, *, for_tools: bool = False) -> str:
        """Return the source of the ``chosen`` template, or of the model's. Raises RequestError if there is none."""
        chosen = chosen or self._chosen
        if chosen is None:
            chosen = "tool_use" if for_tools and "tool_use" in self._sources else ""
            if chosen not in self._sources:
                raise NoChatTemplateError
        return _chosen(self._sources, chosen)


def in_strict_order(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of which at most the first is the system's, and no two in a row are the user's."""
    ordered: list[dict[str, Any]] = []
    for message in messages:
        is_late = message["role"] == "system" and any(earlier["role"] != "system" for earlier in ordered)
        role = "user" if is_late else message["role"]
        if ordered and role in ("system", "user") and ordered[-1]["role"] == role:
            ordered[-1]["content"] = joined(ordered[-1]["content"], message["content"])
        else:
            ordered.append({**message, "role": role})
    return ordered


def has_template(metadata: Mapping[str, Any]) -> bool:
    """Return True if a model's file has a default chat template."""
    return "" in _sources(metadata)


def check_chosen(metadata: Mapping[str, Any], chosen: str) -> None:
    """Raise RequestError if ``chosen`` is neither a template of the model's file, a built-in one, nor a source."""
    _chosen(_sources(metadata), chosen)


def _sources(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates of a file by the names of their variants; the default's name is empty."""
    return {
        key.removeprefix(KEY).removeprefix("."): value
        for key, value in metadata.items()
        if (key == KEY or key.startswith(KEY + ".")) and isinstance(value, str)
    }


def _chosen(sources: Mapping[str, str], chosen: str) -> str:
    """Return the template that ``chosen`` names, or ``chosen`` itself if it is a source."""
    if "{%" in chosen or "{{" in chosen or " " in chosen:  # names contain no space
        return chosen
    templates = {**BUILTIN, **sources}
    if chosen not in templates:
        raise RequestError(unknown_name("chat template", chosen, [name for name in templates if name]))
    return templates[chosen]


def reasoning_variables(switch: bool | None) -> dict[str, Any]:
    """Return the variables with which templates switch reasoning on and off."""
    return {} if switch is None else {"enable_thinking": switch, "thinking": switch}


def _firefunction(tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables that only FireFunction's template uses."""
    now = datetime.now(UTC).strftime("%b %d %Y %H:%M:%S GMT")  # noqa: TID251 (a date in a built-in template)
    return {"functions": json.dumps(tools, indent=2) if tools else "", "datetime": now}
