"""Fields of the messages, tools and items of request bodies, as ``/openapi.json`` describes them.

Requests are not decoded into these classes: the chat template and the protocols' own readers check nested objects, and
give more specific errors. A field of a body refers to a class with ``described``.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta, Struct

KIND = "x-kind"
"""The key of a schema that names the class that describes its objects."""


def described(kind: type[Struct]) -> Meta:
    """Mark the objects of a field as described by a class."""
    return Meta(extra={KIND: kind}, extra_json_schema={KIND: kind.__name__})


# --- OpenAI


class ImageURL(Struct, kw_only=True):
    """An image."""

    url: str
    """`data:image/png;base64,...`, or another type of image; other URLs need `--allow-media-from`."""
    detail: str | None = None
    """Ignored."""


class InputAudio(Struct, kw_only=True):
    """A sound."""

    data: str
    """The file in base64: WAV, FLAC, OGG, MP3 or AIFF."""
    format: str | None = None
    """Ignored: the data tells the format."""


class VideoURL(Struct, kw_only=True):
    """A video."""

    url: str | None = None
    """`data:video/mp4;base64,...`, or another type of video; other URLs need `--allow-media-from`."""
    data: str | None = None
    """The file in base64, in place of `url`."""


class ContentPart(Struct, kw_only=True):
    """A part of a message's content."""

    type: str
    """`text`, `image_url`, `input_audio`, `video_url` or `input_video`."""
    text: str | None = None
    image_url: ImageURL | str | None = None
    input_audio: InputAudio | None = None
    video_url: VideoURL | str | None = None
    """Video of the part, in vLLM's format."""
    input_video: VideoURL | str | None = None
    """Video of the part, in llama-server's format."""


class FunctionCall(Struct, kw_only=True):
    """The function of a tool call."""

    name: str
    arguments: str | dict[str, Any] | None = None
    """Arguments: an object as JSON text; requests may contain the object itself."""


class ToolCall(Struct, kw_only=True):
    """A call of a tool."""

    id: str | None = None
    """Id of the call, which the message with its result repeats as `tool_call_id`."""
    type: str | None = None
    """`function`."""
    function: FunctionCall


class ChatMessage(Struct, kw_only=True):
    """A message of a chat. Chat templates may read further fields."""

    role: str
    """`system`, `developer`, `user`, `assistant`, `tool`, or another role of the chat template."""
    content: str | list[ContentPart] | None = None
    """Text, or parts with text, images and sounds."""
    name: str | None = None
    """Name of the author, or of the tool."""
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    """Id of the call that a message with the role `tool` answers."""


class FunctionDefinition(Struct, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    """Purpose of the function, for the model."""
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments."""
    strict: bool | None = None
    """Ignored: arguments always follow the schema."""


class Tool(Struct, kw_only=True):
    """A tool that the model may use: a function, or an MCP server whose tools this server runs (`--allow-tools`)."""

    type: str | None = None
    """`function` or `mcp`."""
    function: FunctionDefinition | None = None
    server_label: str | None = None
    """Name of the MCP server, for the type `mcp`."""
    allowed_tools: list[str] | dict[str, Any] | None = None
    """Tools of the MCP server that the model may call (default: all)."""


class NamedSchema(Struct, kw_only=True):
    """A JSON schema with its name."""

    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    """JSON schema of the answer."""
    strict: bool | None = None
    """Ignored: answers always follow the schema."""


class ResponseFormat(Struct, kw_only=True):
    """The format of an answer."""

    type: str | None = None
    """`text`, `json_object` or `json_schema`."""
    json_schema: NamedSchema | None = None
    schema: dict[str, Any] | bool | None = None
    """The schema itself, llama-server's short format."""
    value: dict[str, Any] | bool | None = None
    """The schema itself, in TGI's format, which the client of Hugging Face's Hub sends."""
