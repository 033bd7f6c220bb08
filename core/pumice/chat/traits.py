"""Detect the traits of a template by rendering chats that differ in one detail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pumice.architecture import MediaKind
from pumice.chat.template import ChatTemplate, Traits, reasoning_variables
from pumice.errors import RequestError

# What published templates write for an image. Marks around a placeholder belong to it: encoders write their own.
_PLACEHOLDERS = (
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<|begin_of_image|><|image|><|end_of_image|>",
    "<|media_start|>image<|media_content|><|media_pad|><|media_end|>",
    "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
    "<|img|><|imgpad|><|endofimg|>",
    "<img><IMG_CONTEXT></img>",
    "<start_of_image>",
    "<image_soft_token>",
    "<IMG_CONTEXT>",
    "<|image_pad|>",
    "<|image|>",
    "<image>",
    "[IMG]",
)
# The same for a sound.
_AUDIO_PLACEHOLDERS = (
    "<|audio_bos|><|AUDIO|><|audio_eos|>",
    "<|audio_start|><|audio_pad|><|audio_end|>",
    "[BEGIN_AUDIO][AUDIO]",
    "<|begin_of_audio|><|pad|><|end_of_audio|>",
    "<start_of_audio>",
    "<audio_soft_token>",
    "<|AUDIO|>",
    "<|audio|>",
    "<|audio_pad|>",
    "<sound>",
    "[AUDIO]",
)
_VIDEO_PLACEHOLDERS = (
    "<|vision_start|><|video_pad|><|vision_end|>",
    "<|begin_of_video|><|video|><|end_of_video|>",
    "<|video_pad|>",
    "<|video|>",
    "<video>",
)
_PROBE, _OTHER = "PROBE", "OTHER"  # strings that no template contains


def with_traits(template: ChatTemplate) -> ChatTemplate:
    """Return the template with its traits. Raises ModelError if its source is not valid Jinja."""
    return replace(template, traits=find_traits(template))


def find_traits(template: ChatTemplate) -> Traits:
    return Traits(
        has_system=_PROBE in _try(template, [_message("system", _PROBE), _message("user", _OTHER)]),
        has_tools=_PROBE in _try(template, [_message("user", _OTHER)], [_tool()]),
        wants_parts=_PROBE not in _try(template, [_message("user", _PROBE)]),
        takes_parts=_takes_parts(template),
        wants_text_arguments=_wants_text_arguments(template),
        can_switch_reasoning=_can_switch_reasoning(template),
        placeholder=_placeholder(template, "image", _PLACEHOLDERS),
        audio_placeholder=_placeholder(template, "audio", _AUDIO_PLACEHOLDERS),
        video_placeholder=_placeholder(template, "video", _VIDEO_PLACEHOLDERS),
    )


def attempt(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> str:
    """Return the result of ``ChatTemplate.render``, or "" if the template refuses the messages."""
    try:
        return template.render(messages, tools, **options)
    except RequestError:
        return ""


def _try(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Like ``attempt``, without adapting the messages."""
    try:
        return template.render_raw(messages, tools, variables=variables)
    except RequestError:
        return ""


def _takes_parts(template: ChatTemplate) -> bool:
    parts = [{"type": "text", "text": _PROBE}]
    text = _try(template, [{"role": "user", "content": parts}])
    return _PROBE in text and repr(parts) not in text and json.dumps(parts) not in text


def _wants_text_arguments(template: ChatTemplate) -> bool:
    arguments = {_PROBE: _OTHER}
    text = _try(template, [_message("user", _PROBE), _calling(arguments)])
    return (
        not text or repr(arguments) in text
    )  # the template concatenates them with text, or prints them in Python's syntax


def _can_switch_reasoning(template: ChatTemplate) -> bool:
    messages = [_message("user", _PROBE)]
    on, off = (_try(template, messages, variables=reasoning_variables(value)) for value in (True, False))
    return on != off


def _placeholder(template: ChatTemplate, kind: MediaKind, known: Sequence[str]) -> str:
    """Return the placeholder that the template writes once for media of a kind, with the marks around it."""
    candidates = [text for text in known if text in template.source]
    if not candidates:
        return ""
    text_part = {"type": "text", "text": _PROBE}
    without, written = (
        _try(template, [{"role": "user", "content": [*media, text_part]}]) for media in ([], [{"type": kind}])
    )
    if _PROBE not in written:
        return ""
    return next((text for text in candidates if written.count(text) == without.count(text) + 1), "")


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _calling(arguments: Mapping[str, str]) -> dict[str, Any]:
    function = {"name": _PROBE, "arguments": arguments}
    return {**_message("assistant", ""), "tool_calls": [{"id": "123456789", "type": "function", "function": function}]}


def _tool() -> dict[str, Any]:
    properties = {"city": {"type": "string", "description": _OTHER}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": _PROBE, "description": _OTHER, "parameters": parameters}}
