"""Fields of the messages, tools and items of request bodies, as ``/openapi.json`` describes them.

Requests are not decoded into these classes: the chat template and the protocols' own readers check nested objects, and
give more specific errors. A field of a body refers to a class with ``described``.
"""

from __future__ import annotations

from typing import Any, Literal

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
    """Text of the part."""
    image_url: ImageURL | str | None = None
    """Image of the part."""
    input_audio: InputAudio | None = None
    """Sound of the part."""
    video_url: VideoURL | str | None = None
    """Video of the part, as vLLM takes it."""
    input_video: VideoURL | str | None = None
    """Video of the part, as llama-server takes it."""


class FunctionCall(Struct, kw_only=True):
    """The function of a tool call."""

    name: str
    """Name of the function."""
    arguments: str | dict[str, Any] | None = None
    """Arguments: an object as JSON text; requests may contain the object itself."""


class ToolCall(Struct, kw_only=True):
    """A call of a tool."""

    id: str | None = None
    """Id of the call, which the message with its result repeats as `tool_call_id`."""
    type: str | None = None
    """`function`."""
    function: FunctionCall
    """Name and arguments."""


class ChatMessage(Struct, kw_only=True):
    """A message of a chat. Chat templates may read further fields."""

    role: str
    """`system`, `developer`, `user`, `assistant`, `tool`, or another role of the chat template."""
    content: str | list[ContentPart] | None = None
    """Text, or parts with text, images and sounds."""
    name: str | None = None
    """Name of the author, or of the tool."""
    reasoning_content: str | None = None
    """Reasoning of an answer."""
    tool_calls: list[ToolCall] | None = None
    """Tool calls of an answer."""
    tool_call_id: str | None = None
    """Id of the call that a message with the role `tool` answers."""


class FunctionDefinition(Struct, kw_only=True):
    """A function that the model may call."""

    name: str
    """Name of the function."""
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
    """The function."""
    server_label: str | None = None
    """Name of the MCP server, for the type `mcp`."""
    allowed_tools: list[str] | dict[str, Any] | None = None
    """Tools of the MCP server that the model may call (default: all)."""


class ResponseTool(Struct, kw_only=True):
    """A tool of a response. Tools of other types than `function` and `mcp` are left out."""

    type: str | None = None
    """`function`, `mcp`, or the type of a tool that runs at OpenAI."""
    name: str | None = None
    """Name of the function."""
    description: str | None = None
    """Purpose of the function, for the model."""
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments."""
    strict: bool | None = None
    """Ignored: arguments always follow the schema."""
    server_label: str | None = None
    """Name of the MCP server, for the type `mcp`."""
    allowed_tools: list[str] | dict[str, Any] | None = None
    """Tools of the MCP server that the model may call (default: all)."""
    require_approval: str | dict[str, Any] | None = None
    """`always` (the default), `never`, or `{"never": {"tool_names": […]}}`."""


class ResponseContent(Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    """`input_text`, `input_image`, `input_audio`, `input_video`, `output_text`, `reasoning_text` or `summary_text`."""
    text: str | None = None
    """Text of the part."""
    image_url: str | None = None
    """Image of an `input_image`: `data:image/png;base64,...`."""
    input_audio: InputAudio | None = None
    """Sound of an `input_audio`."""
    input_video: VideoURL | str | None = None
    """Video of an `input_video`."""


class CallItem(Struct, kw_only=True):
    """What items of responses' inputs and outputs have alike."""

    role: str | None = None
    """Role of a message."""
    call_id: str | None = None
    """Id of a call, which its output repeats."""
    name: str | None = None
    """Name of the called function."""
    arguments: str | None = None
    """Arguments of a call, as JSON text."""
    server_label: str | None = None
    """Name of an MCP server."""
    error: str | dict[str, Any] | None = None
    """Error of an MCP server or of its tool."""
    approval_request_id: str | None = None
    """Id of the request for approval of an MCP server's call."""


class ResponseItem(CallItem, kw_only=True):
    """An item of a response's input."""

    type: str | None = None
    """`message` (default), `reasoning`, `function_call`, `function_call_output`, `mcp_list_tools`, `mcp_call`,
    `mcp_approval_request` or `mcp_approval_response`."""
    content: str | list[ResponseContent] | None = None
    """Content of a message, or text of reasoning."""
    summary: list[ResponseContent] | None = None
    """Summary of reasoning, used if there is no content."""
    output: str | list[ResponseContent] | None = None
    """Result of a call."""
    id: str | None = None
    """Id of an MCP server's call, or of a request for approval."""
    approve: bool | None = None
    """True if the call may run."""
    reason: str | None = None
    """Reason for a refusal, which the model reads."""


class NamedSchema(Struct, kw_only=True):
    """A JSON schema with its name."""

    name: str | None = None
    """Name of the schema."""
    schema: dict[str, Any] | bool | None = None
    """JSON schema of the answer."""
    strict: bool | None = None
    """Ignored: answers always follow the schema."""


class ResponseFormat(Struct, kw_only=True):
    """The form of an answer."""

    type: str | None = None
    """`text`, `json_object` or `json_schema`."""
    json_schema: NamedSchema | None = None
    """The schema, for `json_schema`."""
    schema: dict[str, Any] | bool | None = None
    """The schema itself, llama-server's short form."""
    value: dict[str, Any] | bool | None = None
    """The schema itself, in TGI's form, which the client of Hugging Face's Hub sends."""


# --- Anthropic


class TextBlock(Struct, kw_only=True):
    """A block of text."""

    type: str
    """`text`."""
    text: str | None = None
    """Text of the block."""


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
    """Id of a tool call."""
    name: str | None = None
    """Name of the called tool."""
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
    """A message of a chat, in Anthropic's form."""

    role: Literal["user", "assistant", "system"]
    """Author of the message."""
    content: str | list[AnthropicBlock]
    """Text, or blocks."""


class AnthropicTool(Struct, kw_only=True):
    """A tool that the model may use, in Anthropic's form. Tools that run at Anthropic are left out."""

    type: str | None = None
    """`custom`, or the type of a tool that runs at Anthropic."""
    name: str | None = None
    """Name of the tool."""
    description: str | None = None
    """Purpose of the tool, for the model."""
    input_schema: dict[str, Any] | None = None
    """JSON schema of the arguments."""


# --- Ollama


class OllamaFunctionCall(Struct, kw_only=True):
    """The function of a tool call, in Ollama's form."""

    name: str
    """Name of the function."""
    arguments: dict[str, Any] | str | None = None
    """Arguments, as an object."""


class OllamaToolCall(Struct, kw_only=True):
    """A call of a tool, in Ollama's form."""

    function: OllamaFunctionCall
    """Name and arguments."""


class OllamaMessage(Struct, kw_only=True):
    """A message of a chat, in Ollama's form."""

    role: str
    """`system`, `user`, `assistant`, `tool`, or another role of the chat template."""
    content: str | list[ContentPart] | None = None
    """Text of the message."""
    thinking: str | None = None
    """Reasoning of an answer."""
    tool_calls: list[OllamaToolCall] | None = None
    """Tool calls of an answer."""
    images: list[str] | None = None
    """Images and sounds of the message, in base64: the first bytes tell which."""
    tool_name: str | None = None
    """Name of the tool whose result the message is."""
