"""The server's own endpoints, and its description of all."""
