"""The chat template of a model: which it is, and what becomes of messages before it renders them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pumice.chat.builtin import BUILTIN
from pumice.chat.jinja import compiled
from pumice.errors import NoChatTemplateError, RequestError
from pumice.suggest import unknown_name

KEY = "tokenizer.chat_template"  # of the GGUF file; variants are under KEY.NAME

_OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})


@dataclass(frozen=True)
class Traits:
    """What a template takes and shows, as ``find_traits`` finds by rendering with it.

    Attributes:
        has_system: it shows messages of the role "system".
        has_tools: it writes tools into the prompt.
        wants_parts: a content must be a list of parts; takes_parts: it may be one.
        wants_text_arguments: the arguments of a call must be JSON text.
        can_switch_reasoning: ``enable_thinking`` or ``thinking`` makes a difference.
    """

    has_system: bool = True
    has_tools: bool = False
    wants_parts: bool = False
    takes_parts: bool = False
    wants_text_arguments: bool = False
    can_switch_reasoning: bool = False


@dataclass(frozen=True)
class ChatTemplate:
    """Renders as transformers does, after what the template cannot do is put into what it can.

    Where the template has no system role the system's text begins the first message; arguments of calls are JSON text
    where it wants text; contents are lists of parts where it wants those. Methods that render compile the source, so
    that only workers call them. ``bos`` and ``eos`` are the spellings of the tokens.
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
        """The text for messages as ``read_messages`` gives them.

        Args:
            tools: as ``read_tools`` gives them.
            add_generation_prompt: end with what begins the assistant's answer.
            variables: further ones, ``enable_thinking`` say; None stands for one that is not there.

        Raises:
            ModelError: the source is no template.
            RequestError: the template refuses the messages, or a variable has the name of one of its own.
        """
        own = _OWN.intersection(variables or ())
        if own:
            raise RequestError(f"the template variable {min(own)!r} is not yours to set")
        adapted = [self._adapt(message) for message in self._merge_system(messages)]
        return self.render_raw(adapted, tools, add_generation_prompt, variables)

    def render_raw(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """As ``render``, with the messages as they are."""
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
        """The key of a message under which it looks for reasoning."""
        keys = ("reasoning_content", "reasoning", "thinking")
        return next((key for key in keys if re.search(rf"\b{key}\b", self.source)), keys[0])

    def _merge_system(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        merged = [dict(message) for message in messages]
        for message in merged:
            if message["role"] == "developer" and "developer" not in self.source:
                message["role"] = "system"
        if merged[0]["role"] == "system" and len(merged) > 1 and not self.traits.has_system:
            system = merged.pop(0)["content"]
            merged[0]["content"] = f"{system}\n\n{merged[0]['content']}" if system else merged[0]["content"]
        return merged

    def _adapt(self, message: dict[str, Any]) -> dict[str, Any]:
        message = copy.deepcopy(message)
        if "reasoning" in message:
            message[self.reasoning_key] = message.pop("reasoning")
        for call in message.get("tool_calls", ()):
            if self.traits.wants_text_arguments:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        if self.traits.wants_parts:
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message


class ChatTemplates:
    """The templates that a model may be given: of its file, one of them for tools, or one that was named."""

    def __init__(self, metadata: Mapping[str, Any], chosen: str | None = None) -> None:
        """``chosen``: the name of a variant of the file or of a built-in template, or a template itself."""
        self._sources = _sources(metadata)
        self._chosen = chosen

    def source(self, chosen: str | None = None, *, for_tools: bool = False) -> str:
        """The source that ``chosen`` names, or else the model's. Raises RequestError if there is none."""
        chosen = chosen or self._chosen
        if chosen is None:
            chosen = "tool_use" if for_tools and "tool_use" in self._sources else ""
            if chosen not in self._sources:
                raise NoChatTemplateError
        return _chosen(self._sources, chosen)


def has_template(metadata: Mapping[str, Any]) -> bool:
    """Return whether a model's file has a chat template; one for tools alone is none."""
    return "" in _sources(metadata)


def check_chosen(metadata: Mapping[str, Any], chosen: str) -> None:
    """Raise RequestError for a name that neither the model's file nor anybody else has for a template."""
    _chosen(_sources(metadata), chosen)


def _sources(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The templates of a file, by the names of its variants; that of its template is empty."""
    return {
        key.removeprefix(KEY).removeprefix("."): value
        for key, value in metadata.items()
        if (key == KEY or key.startswith(KEY + ".")) and isinstance(value, str)
    }


def _chosen(sources: Mapping[str, str], chosen: str) -> str:
    """The template that is meant by its name, or is given itself."""
    if "{%" in chosen or "{{" in chosen or " " in chosen:  # no name has a space
        return chosen
    known = {**BUILTIN, **sources}
    if chosen not in known:
        raise RequestError(unknown_name("chat template", chosen, [name for name in known if name]))
    return known[chosen]


def reasoning_variables(switch: bool | None) -> dict[str, Any]:
    """The variables with which templates switch reasoning on and off."""
    return {} if switch is None else {"enable_thinking": switch, "thinking": switch}


def _firefunction(tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Variables that FireFunction's template has beside everybody's."""
    now = datetime.now(UTC).strftime("%b %d %Y %H:%M:%S GMT")
    return {"functions": json.dumps(tools, indent=2) if tools else "", "datetime": now}
