"""Tools of MCP servers (Model Context Protocol): their configuration, connections to them, and their tools for chats.

The package ``mcp`` speaks the protocol; it is imported when a connection opens.
"""

from pumice.mcp.connections import Connections, ServerTool
from pumice.mcp.servers import McpServer, read_servers, read_servers_file, require_package
from pumice.mcp.tools import mcp_tools

__all__ = [
    "Connections",
    "McpServer",
    "ServerTool",
    "mcp_tools",
    "read_servers",
    "read_servers_file",
    "require_package",
]
