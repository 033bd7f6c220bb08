"""Messages between a process that uses tools and the one that holds the MCP connections."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

Number = Annotated[int, Meta(ge=0, le=2**53)]


class ToolMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages."""


class OfferedTool(msgspec.Struct, frozen=True, array_like=True):
    """A tool; ``parameters`` is the JSON text of the schema of its arguments.

    ``name`` is unique among all tools, ``own_name`` is the tool's name at its server.
    """

    name: str
    description: str
    parameters: str
    server: str
    own_name: str

    def definition(self, name: str) -> dict[str, Any]:
        """Return the tool under a name, in the format of OpenAI's chat completions."""
        function = {"name": name, "description": self.description, "parameters": json.loads(self.parameters)}
        return {"type": "function", "function": function}


class RunTool(ToolMessage, frozen=True):
    """Call a tool. ``arguments`` is JSON text; the sender chooses ``number`` and never reuses it."""

    number: Number
    name: str
    arguments: str


class CancelTool(ToolMessage, frozen=True):
    """Cancel a call, which is answered nevertheless."""

    number: Number


class SkipServers(ToolMessage, frozen=True):
    """Go on without the servers that have not started yet."""


class StartServers(ToolMessage, frozen=True):
    """Start servers again that have failed; offers follow, at least one."""

    servers: list[str]


class Starting(ToolMessage, frozen=True):
    """Names of the servers that have not started after a while; an offer follows."""

    servers: list[str]


class Offer(ToolMessage, frozen=True):
    """All tools, and a line for each server or tool that cannot be used; precedes every result.

    ``failed`` are the names of the servers that cannot be used, ``starting`` of those that have not started yet, after
    which another offer replaces this one.
    """

    tools: list[OfferedTool]
    problems: list[str]
    failed: list[str]
    starting: list[str]


class ToolResult(ToolMessage, frozen=True):
    """The result of a call, or the text of its error."""

    number: Number
    text: str
    is_error: bool


TO_HOST: Final[msgspec.msgpack.Decoder[RunTool | CancelTool | SkipServers | StartServers]] = msgspec.msgpack.Decoder(
    RunTool | CancelTool | SkipServers | StartServers
)
FROM_HOST: Final[msgspec.msgpack.Decoder[Starting | Offer | ToolResult]] = msgspec.msgpack.Decoder(
    Starting | Offer | ToolResult
)
