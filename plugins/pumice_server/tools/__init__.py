"""Tools of MCP servers that the server runs for its clients, with ``--allow-tools``."""
