"""Tools of MCP servers that the server runs for chats and responses."""
