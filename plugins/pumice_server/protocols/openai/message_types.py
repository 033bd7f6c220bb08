"""Items and tools of OpenAI's responses."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from pumice_server.field_types import _MOST_MESSAGES, _MOST_TOOLS, Object
from pumice_server.message_types import InputAudio, VideoURL, described


class ResponseTool(Struct, kw_only=True):
    """A tool of a response. Tools of other types than `function` and `mcp` are left out."""

    type: str | None = None
    """`function`, `mcp`, or the type of a tool that runs at OpenAI."""
    name: str | None = None
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
    image_url: str | None = None
    """Image of an `input_image`: `data:image/png;base64,...`."""
    input_audio: InputAudio | None = None
    """Sound of an `input_audio`."""
    input_video: VideoURL | str | None = None
    """Video of an `input_video`."""


class CallItem(Struct, kw_only=True):
    """What items of responses' inputs and outputs have alike."""

    role: str | None = None
    call_id: str | None = None
    """Id of a call, which its output repeats."""
    name: str | None = None
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


ResponseTools = Annotated[list[Annotated[Object, described(ResponseTool)]], _MOST_TOOLS]


ResponseItems = Annotated[list[Annotated[dict[str, Any], described(ResponseItem)]], _MOST_MESSAGES]
