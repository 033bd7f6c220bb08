"""The contract of the server's protocols: endpoints, and the format of errors.

What an endpoint uses, such as the loaded models, is in ``pumice_server.interface``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Handler = Callable[..., Awaitable[object]]
"""A coroutine function of a Starlette request, and of the body if it has a parameter ``body``.

It returns a Starlette response, or a value that becomes JSON.
"""

Scope = Literal["infer", "admin", ""]


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of a protocol.

    Attributes:
        method: HTTP method.
        handler: Function that answers a request. Its docstring describes the endpoint in ``/openapi.json``, and the
            annotation of its parameter ``body`` is the class that checks the request.
        paths: Paths in Starlette's syntax; the first is the usual one.
        scope: Scope that an API key needs; ``""`` if the endpoint needs no key.
        uploads: True if the body is a file, which ``--allow-uploads`` bounds.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    handler: Handler
    paths: Sequence[str]
    scope: Scope = "infer"
    uploads: bool = False


@dataclass(frozen=True)
class Problem:
    """An error for a client.

    Attributes:
        status: HTTP status.
        message: One line: cause and remedy.
        type: Kind of the error, as llama-server and OpenAI name it.
        fields: Further values, such as ``n_ctx`` of a prompt that exceeds the context.
        headers: Headers of the response.
    """

    status: int
    message: str
    type: str
    fields: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


ErrorFormat = Callable[[Problem, str], Mapping[str, object]]
"""Returns the JSON object of an error; the text is the id of the request."""


@dataclass(frozen=True)
class ServerProtocol:
    """A protocol of ``pumice serve``.

    Attributes:
        title: Name for people, and heading in ``/docs``.
        endpoints: Function that returns the endpoints for the settings of the server (``pumice_server.interface``).
        prefix: Beginning of the paths whose errors have the format ``error``; ``""`` if errors have OpenAI's.
        error: Format of errors below ``prefix``.
        state: Objects that the protocol keeps for the time of a server, made by functions without arguments, by their
            names in ``request.app.state``.
    """

    title: str
    endpoints: Callable[..., Sequence[Endpoint]]
    prefix: str = ""
    error: ErrorFormat | None = None
    state: Mapping[str, Callable[[], object]] = field(default_factory=dict)
