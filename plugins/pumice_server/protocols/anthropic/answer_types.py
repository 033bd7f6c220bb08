"""Answers of Anthropic's protocol."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from pumice_server.answer_types import ErrorDetail


class AnswerBlock(Struct, kw_only=True):
    """A block of an answer's content."""

    type: str
    """`text`, `thinking` or `tool_use`."""
    text: str | None = None
    """Text of a `text` block."""
    thinking: str | None = None
    """Reasoning of a `thinking` block."""
    signature: str | None = None
    """Empty, and ignored."""
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    """Arguments of a tool call."""


class AnthropicUsage(Struct, kw_only=True):
    """Tokens of a request, in Anthropic's format."""

    input_tokens: int
    """Tokens of the prompt that were not cached."""
    cache_read_input_tokens: int
    """Tokens of the prompt that were cached."""
    cache_creation_input_tokens: int
    """0."""
    output_tokens: int


class AnthropicAnswer(Struct, kw_only=True):
    """Anthropic's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: str | None
    """`end_turn`, `max_tokens`, `stop_sequence` or `tool_use`."""
    stop_sequence: str | None
    """The stop sequence that ended the answer."""
    usage: AnthropicUsage


class AnthropicEvent(Struct, kw_only=True):
    """An event of a message's stream."""

    type: str
    """`message_start`, `content_block_start`, `content_block_delta`, `content_block_stop`, `message_delta`, `message_stop`, `ping` or `error`."""  # noqa: E501
    message: AnthropicAnswer | None = None
    """The message at its start."""
    index: int | None = None
    content_block: AnswerBlock | None = None
    """The block at its start."""
    delta: dict[str, Any] | None = None
    """Further text, reasoning or arguments, or the reason of the end."""
    usage: AnthropicUsage | None = None
    """Tokens of the request, in `message_delta`."""
    error: ErrorDetail | None = None
    """The error, in an event of type `error`."""
