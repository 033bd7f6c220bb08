"""Errors in the form of each protocol: a status, a type and one line, never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

import pumice

logger = logging.getLogger("pumice")

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
    507: "insufficient_storage_error",
}
"""Types of llama-server's errors, by status; 429's is OpenAI's."""

_ANTHROPIC_TYPES = {400: "invalid_request_error", 413: "request_too_large", 500: "api_error", 503: "overloaded_error"}
"""Error types of Anthropic that differ."""

_TOO_LONG = "exceed_context_size_error"
_LISTED = 20  # names of models in a message
_RETRY_SECONDS = "1"
_CLIENT_GONE = 499  # status in logs; nobody reads it


@dataclass(frozen=True)
class Problem:
    """An error for a client. ``fields`` are further keys of the error's object, ``headers`` those of the response."""

    status: int
    message: str
    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        if isinstance(error, HTTPException):
            kind = _type(error.status_code)
            return cls(error.status_code, error.detail, kind, headers=error.headers or {})
        if isinstance(error, pumice.PromptTooLongError):
            counts = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
            return cls(400, str(error), _TOO_LONG, counts)
        if isinstance(error, pumice.QueueFullError):
            return cls(429, str(error), _type(429))
        if isinstance(error, (pumice.ModelClosedError, pumice.EngineDiedError, pumice.UnavailableError)):
            return cls(503, str(error), _type(503))
        if isinstance(error, pumice.NoChatTemplateError):
            return cls(400, error.in_commands, _type(400))
        if isinstance(error, pumice.RequestError):
            return cls(400, str(error), _type(400))
        if isinstance(error, pumice.TokenizerError):  # a text for a file without a tokenizer
            return cls(501, str(error), _type(501))
        if isinstance(error, pumice.PumiceError):
            return cls(500, str(error), _type(500))
        return cls(500, "internal error; the server's log has more", _type(500))

    def body(self) -> dict[str, Any]:
        """Return the form of OpenAI and llama-server."""
        error = {"message": self.message, "type": self.type, "code": self.status, "param": None, **self.fields}
        return {"error": error}

    def ollama_body(self) -> dict[str, Any]:
        return {"error": self.message}

    def anthropic_body(self, request_id: str) -> dict[str, Any]:
        message = self.message
        if self.type == _TOO_LONG:  # words that Claude Code looks for before it shortens its chat
            message = f"prompt is too long: {message}"
        error = {"type": _ANTHROPIC_TYPES.get(self.status, self.type), "message": message}
        return {"type": "error", "error": error, "request_id": request_id}

    def response(self, path: str, request_id: str) -> Response:
        """Return the response in the form of the protocol that ``path`` belongs to."""
        body = self.body()
        if path.startswith("/api/"):
            body = self.ollama_body()
        elif path.startswith("/v1/messages"):
            body = self.anthropic_body(request_id)
        retry = {"Retry-After": _RETRY_SECONDS} if self.status in (429, 503) else {}
        return Response(orjson.dumps(body), self.status, {**retry, **self.headers}, "application/json")


def bad_request(message: str) -> HTTPException:
    return HTTPException(400, message)


def no_model(name: str, served: Sequence[str]) -> HTTPException:
    """Return the error of a name that is not among ``served``, of which clients may have made a thousand."""
    listed = ", ".join(f"{other:.100}" for other in served[:_LISTED])
    more = f" and {len(served) - _LISTED} more" if len(served) > _LISTED else ""
    return HTTPException(404, f"there is no model {name!r:.100}; served: {listed}{more}")


def too_large(most: int) -> HTTPException:
    """Return the error of a body of more than ``most`` bytes; what is left of it is not read as a request."""
    return HTTPException(413, f"the body has more than {most} bytes", {"Connection": "close"})


def too_late() -> HTTPException:
    """Return the error of a request whose time ended before its first token."""
    return HTTPException(503, "the request took longer than --timeout before its first token: try again later")


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the response for any exception of an endpoint."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=_CLIENT_GONE)
    problem = Problem.of(error)
    if problem.message == HTTPStatus(problem.status).phrase:  # raised by the router
        problem = replace(problem, message=_unknown(request, problem.status))
    foreseen = isinstance(error, (HTTPException, pumice.UnavailableError)) and problem.status in (501, 503, 507)
    if problem.status >= 500 and not foreseen:
        logger.error("%s %s: %s: %s", request.method, request.scope["path"], type(error).__name__, error)
    return problem.response(request.scope["path"], request.state.request_id)


def _unknown(request: Request, status: int) -> str:
    path = request.scope["path"]
    return f"{path} does not support {request.method}" if status == 405 else f"there is no endpoint {path!r:.200}"


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
