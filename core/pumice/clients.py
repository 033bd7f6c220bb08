"""The client that a request is answered for."""

from contextvars import ContextVar

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""A name of the client, such as its API key's or its address; clients take turns. Empty: each request stands alone."""
