"""Tools of MCP servers (Model Context Protocol): their configuration, connections to them, and their tools for chats.

Names are imported on first use. The package ``mcp`` speaks the protocol; it is imported when a connection opens.
"""

from typing import TYPE_CHECKING

from pumice.chat.tools import ToolError
from pumice.lazy import lazy_names

if TYPE_CHECKING:
    from pumice.mcp.connections import Connections, ServerTool
    from pumice.mcp.hosted import HostedTools, hosted_tools
    from pumice.mcp.servers import McpServer, read_servers, read_servers_file, require_package, user_file
    from pumice.mcp.tools import mcp_tools
    from pumice.mcp.wire import Offer, OfferedTool

__all__ = [
    "Connections",
    "HostedTools",
    "McpServer",
    "Offer",
    "OfferedTool",
    "ServerTool",
    "ToolError",
    "hosted_tools",
    "mcp_tools",
    "read_servers",
    "read_servers_file",
    "require_package",
    "user_file",
]

_HOMES = {
    "connections": ["Connections", "ServerTool"],
    "hosted": ["HostedTools", "hosted_tools"],
    "servers": ["McpServer", "read_servers", "read_servers_file", "require_package", "user_file"],
    "tools": ["mcp_tools"],
    "wire": ["Offer", "OfferedTool"],
}

__getattr__ = lazy_names(__name__, _HOMES)
