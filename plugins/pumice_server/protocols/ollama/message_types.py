"""Messages of Ollama's protocol."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from pumice_server.field_types import Name
from pumice_server.limits import MAX_FILES, MAX_MESSAGES
from pumice_server.message_types import ContentPart, described


class OllamaFunctionCall(Struct, kw_only=True):
    """The function of a tool call, in Ollama's format."""

    name: str
    arguments: dict[str, Any] | str | None = None
    """Arguments, as an object."""


class OllamaToolCall(Struct, kw_only=True):
    """A call of a tool, in Ollama's format."""

    function: OllamaFunctionCall


class OllamaMessage(Struct, kw_only=True):
    """A message of a chat, in Ollama's format."""

    role: str
    """`system`, `user`, `assistant`, `tool`, or another role of the chat template."""
    content: str | list[ContentPart] | None = None
    thinking: str | None = None
    tool_calls: list[OllamaToolCall] | None = None
    images: list[str] | None = None
    """Images and sounds of the message, in base64: the first bytes tell which."""
    tool_name: str | None = None


KeepAlive = Annotated[float, Meta(ge=-1e9, le=1e9)] | Annotated[str, Meta(max_length=64)]


Digests = Annotated[dict[Name, Annotated[str, Meta(max_length=100)]], Meta(max_length=MAX_FILES)]


OllamaMessages = Annotated[list[Annotated[dict[str, Any], described(OllamaMessage)]], Meta(max_length=MAX_MESSAGES)]
