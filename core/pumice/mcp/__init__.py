"""Tools of MCP servers (Model Context Protocol): their configuration, connections to them, and their tools for chats.

The package ``mcp`` speaks the protocol; it is imported when a connection opens.
"""

from pumice.chat.tools import ToolError
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
