"""The chat template of a model: typed messages in, the text of a prompt out."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pumice.chat.builtin import BUILTIN
from pumice.chat.isolated import Renderer
from pumice.chat.jinja import JinjaTemplate
from pumice.errors import NoChatTemplateError, RequestError
from pumice.suggest import unknown_name
from pumice.tokenizers import Tokenizer

KEY = "tokenizer.chat_template"  # of the GGUF file; variants are under KEY.NAME

_OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})
_PROBE, _OTHER = "PROBE", "OTHER"  # texts that no template writes by itself


class ChatTemplate:
    """Renders as transformers does, after what the template cannot do is put into what it can.

    Where the template has no system role the system's text begins the first message; arguments of calls are JSON text
    where it wants text; contents are lists of parts where it wants those.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "", renderer: Renderer | None = None) -> None:
        """``bos`` and ``eos`` are the spellings of the tokens; ``renderer`` renders elsewhere.

        Raises ModelError if ``source`` is no template.
        """
        self.source = source
        self._jinja = JinjaTemplate(source)
        self._renderer = renderer
        self._tokens = {"bos_token": bos, "eos_token": eos}

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
            RequestError: the template refuses the messages, or a variable has the name of one of its own.
        """
        own = _OWN.intersection(variables or ())
        if own:
            raise RequestError(f"the template variable {min(own)!r} is not yours to set")
        return self._render([self._adapt(message) for message in self._merge_system(messages)], tools,
                            add_generation_prompt, variables or {})  # fmt: skip

    def attempt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **options: Any
    ) -> str:
        """As ``render``; empty if the template refuses the messages."""
        try:
            return self.render(messages, tools, **options)
        except RequestError:
            return ""

    @cached_property
    def has_system(self) -> bool:
        """Whether it knows messages of the role "system"."""
        return _PROBE in self._try([_message("system", _PROBE), _message("user", _OTHER)])

    @cached_property
    def has_tools(self) -> bool:
        """Whether tools are written into the prompt."""
        properties = {"city": {"type": "string", "description": _OTHER}}
        parameters = {"type": "object", "properties": properties, "required": ["city"]}
        tool = {"type": "function", "function": {"name": _PROBE, "description": _OTHER, "parameters": parameters}}
        return _PROBE in self._try([_message("user", _OTHER)], [tool])

    @cached_property
    def wants_parts(self) -> bool:
        """Whether a content must be a list of parts."""
        return _PROBE not in self._try([_message("user", _PROBE)])

    @cached_property
    def takes_parts(self) -> bool:
        """Whether a content may be a list of parts."""
        parts = [{"type": "text", "text": _PROBE}]
        text = self._try([{"role": "user", "content": parts}])
        return _PROBE in text and repr(parts) not in text and json.dumps(parts) not in text

    @cached_property
    def wants_text_arguments(self) -> bool:
        """Whether the arguments of a call must be JSON text."""
        arguments = {_PROBE: _OTHER}
        text = self._try([_message("user", _PROBE), _calling(arguments)])
        return not text or repr(arguments) in text  # it adds them to text, or writes them as Python does

    @cached_property
    def reasoning_key(self) -> str:
        """The key of a message under which it looks for reasoning."""
        keys = ("reasoning_content", "reasoning", "thinking")
        return next((key for key in keys if re.search(rf"\b{key}\b", self.source)), keys[0])

    @cached_property
    def can_switch_reasoning(self) -> bool:
        """Whether ``enable_thinking`` or ``thinking`` makes a difference."""
        messages = [_message("user", _PROBE)]
        on, off = (self._try(messages, variables=reasoning_variables(value)) for value in (True, False))
        return on != off

    def _merge_system(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        merged = [dict(message) for message in messages]
        for message in merged:
            if message["role"] == "developer" and "developer" not in self.source:
                message["role"] = "system"
        if merged[0]["role"] == "system" and len(merged) > 1 and not self.has_system:
            system = merged.pop(0)["content"]
            merged[0]["content"] = f"{system}\n\n{merged[0]['content']}" if system else merged[0]["content"]
        return merged

    def _adapt(self, message: dict[str, Any]) -> dict[str, Any]:
        message = copy.deepcopy(message)
        if "reasoning" in message:
            message[self.reasoning_key] = message.pop("reasoning")
        for call in message.get("tool_calls", ()):
            if self.wants_text_arguments:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        if self.wants_parts:
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        context = {
            **{name: value for name, value in variables.items() if value is not None},
            **self._tokens,
            **(_firefunction(tools) if " functools[" in self.source else {}),
            "messages": messages,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._renderer(self.source, context) if self._renderer else self._jinja.render(context)

    def _try(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text for a probe; empty if the template refuses it."""
        try:
            return self._render(messages, tools, True, variables or {})
        except RequestError:
            return ""


class ChatTemplates:
    """The templates that a model may be given: of its file, one of them for tools, or one that was named."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tokenizer: Tokenizer,
        chosen: str | None = None,
        renderer: Renderer | None = None,
    ) -> None:
        """``chosen``: the name of a variant of the file or of a built-in template, or a template itself."""
        self._renderer = renderer
        self._sources = _sources(metadata)
        self._chosen = chosen
        self._made: dict[str, ChatTemplate] = {}
        self._bos, self._eos = (_spelling(tokenizer, token) for token in (tokenizer.bos, tokenizer.eos))

    def get(self, chosen: str | None = None, *, for_tools: bool = False) -> ChatTemplate:
        """The template that ``chosen`` names, or else the model's.

        Raises RequestError if there is none, and ModelError if it is no valid template.
        """
        source = self._source(chosen or self._chosen, for_tools)
        if source not in self._made:
            self._made[source] = ChatTemplate(source, self._bos, self._eos, self._renderer)
        return self._made[source]

    def _source(self, chosen: str | None, for_tools: bool) -> str:
        if chosen is None:
            chosen = "tool_use" if for_tools and "tool_use" in self._sources else ""
            if chosen not in self._sources:
                raise NoChatTemplateError
        return _chosen(self._sources, chosen)


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
    if "{%" in chosen or "{{" in chosen:
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


def _spelling(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.vocabulary.tokens[token]


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _calling(arguments: Any) -> dict[str, Any]:
    function = {"name": _PROBE, "arguments": arguments}
    return {**_message("assistant", ""), "tool_calls": [{"id": "123456789", "type": "function", "function": function}]}
