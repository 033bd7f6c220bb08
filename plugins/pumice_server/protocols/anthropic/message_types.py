"""Messages and tools of Anthropic's protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pumice_server.field_types import _MOST_MESSAGES, _MOST_TOOLS, Object
from pumice_server.limits import MAX_MESSAGES
from pumice_server.message_types import described


class TextBlock(Struct, kw_only=True):
    """A block of text."""

    type: str
    """`text`."""
    text: str | None = None


class BlockSource(Struct, kw_only=True):
    """The text of a document, or an image."""

    type: str
    """`text` or `content` of a document, `base64` of an image."""
    media_type: str | None = None
    """Ignored: the data tells the type of an image."""
    data: str | None = None
    """Text, for the type `text`; the image's file, for the type `base64`."""
    content: str | list[TextBlock] | None = None
    """Text or blocks of text, for the type `content`."""


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


class AnthropicBlock(AnswerBlock, kw_only=True):
    """A block of a message's content."""

    type: str
    """`text`, `image`, `document`, `search_result`, `thinking`, `redacted_thinking`, `tool_use` or `tool_result`."""
    tool_use_id: str | None = None
    """Id of the call that a `tool_result` answers."""
    content: str | list[TextBlock] | None = None
    """Result of a tool, or texts of a search result."""
    source: BlockSource | str | None = None
    """Text of a document, an image, or the address of a search result."""
    title: str | None = None
    """Title of a document or a search result, which precedes its text."""


class AnthropicMessage(Struct, kw_only=True):
    """A message of a chat, in Anthropic's format."""

    role: Literal["user", "assistant", "system"]
    content: str | list[AnthropicBlock]
    """Text, or blocks."""


class AnthropicTool(Struct, kw_only=True):
    """A tool that the model may use, in Anthropic's format. Tools that run at Anthropic are left out."""

    type: str | None = None
    """`custom`, or the type of a tool that runs at Anthropic."""
    name: str | None = None
    description: str | None = None
    """Purpose of the tool, for the model."""
    input_schema: dict[str, Any] | None = None
    """JSON schema of the arguments."""


AnthropicTools = Annotated[list[Annotated[Object, described(AnthropicTool)]], _MOST_TOOLS]


AnthropicMessages = Annotated[list[Annotated[dict[str, Any], described(AnthropicMessage)]], _MOST_MESSAGES]


SystemBlocks = Annotated[list[Annotated[dict[str, Any], described(TextBlock)]], Meta(max_length=MAX_MESSAGES)]
