"""Bodies of requests of Anthropic's protocol."""

from __future__ import annotations

from msgspec import Struct

from pumice_server.field_types import Blocks, Count, Messages, Name, Object, Stops, Tools, Word
from pumice_server.interface import Generation


class Thinking(Struct):
    """Whether and how long to reason."""

    type: Word | None = None
    """`enabled`, `adaptive` or `disabled`."""
    budget_tokens: Count | None = None
    """Maximum tokens of reasoning."""


class OutputConfig(Struct):
    """How to answer."""

    effort: Word | None = None
    """How long to reason: `low`, `medium`, `high`."""
    format: Object | None = None
    """`{"type": "json_schema", "schema": …}`."""


class AnthropicPromptBody(Generation, kw_only=True):
    """A chat whose tokens are counted."""

    model: Name | None = None
    """Name of the model (default: the first that is served)."""
    messages: Messages
    """Messages of the chat, the oldest first. Blocks of a content have the types `text`, `image` (base64), `document`
    (text), `search_result`, `thinking`, `redacted_thinking`, `tool_use` and `tool_result`."""
    system: str | Blocks | None = None
    """System prompt: text, or blocks of text."""
    tools: Tools | None = None
    """Tools that the model may use: `name`, `description`, `input_schema`. Those that run at Anthropic are left out."""
    tool_choice: Object | None = None
    """`{"type": "auto"}`, `any`, `none`, or `tool` with a name."""
    thinking: Thinking | None = None
    """Whether and how long to reason."""
    output_config: OutputConfig | None = None
    """Effort, and the format of the answer."""


class AnthropicMessagesBody(AnthropicPromptBody):
    """Anthropic's message."""

    stream: bool = False
    """Send the answer in parts, as server-sent events."""
    max_tokens: Count = 4096
    """Maximum tokens of the answer."""
    stop_sequences: Stops | None = None
    """Texts that end the answer."""
    output_format: Object | None = None
    """Older name of `output_config.format`."""

    def stop_strings(self) -> list[str]:
        return self.stop_sequences or []
