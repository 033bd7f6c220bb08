"""Errors of requests: a status, a type and one line, never a traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

import pumice
from pumice.plugin.unstable import ErrorFormat, Problem
from pumice_server import logs

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

_STATUS: Mapping[tuple[type[pumice.PumiceError], ...], int] = {
    (pumice.QueueFullError,): 429,
    (pumice.ModelClosedError, pumice.EngineDiedError, pumice.UnavailableError): 503,
    (pumice.MissingPackageError,): 501,
    (pumice.RequestError,): 400,
    (pumice.TokenizerError,): 501,  # a text for a file without a tokenizer
    (pumice.PumiceError,): 500,
}
"""Statuses of errors of the library; the first kind that fits counts."""

_FOLDERS = re.compile(
    r"""(?<![\w:/\\])(?:[A-Za-z]:|[.~]{0,2})(?:/|\\{1,2})"""
    r"""(?:[^\s/\\:"',;()](?:[^/\\:"',;()\n]*[^\s/\\:"',;()])?(?:/|\\{1,2}))+"""
)
"""The folders of a path, which may have spaces within; addresses of the web are none."""

TOO_LONG = "exceed_context_size_error"
_LISTED = 20  # names of models in a message
_RETRY_SECONDS = "1"
_CLIENT_GONE = 499  # status in logs; nobody reads it


def problem_of(error: BaseException) -> Problem:
    """Return what a client is told of an error; an error of the server names no folders of it."""
    problem = _problem_of(error)
    return replace(problem, message=without_folders(problem.message)) if problem.status >= 500 else problem


def without_folders(message: str) -> str:
    """Return a message with the names of files in place of their absolute paths."""
    return _FOLDERS.sub("", message)


def _problem_of(error: BaseException) -> Problem:
    if isinstance(error, pumice.RequestTimeoutError):
        error = too_late()
    if isinstance(error, HTTPException):
        return Problem(error.status_code, error.detail, _type(error.status_code), headers=error.headers or {})
    if isinstance(error, pumice.PromptTooLongError):
        return Problem(400, str(error), TOO_LONG, {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx})
    message = error.in_commands if isinstance(error, pumice.NoChatTemplateError) else str(error)
    for kinds, status in _STATUS.items():
        if isinstance(error, kinds):
            return Problem(status, message, _type(status))
    return Problem(500, "internal error; the server's log has more", _type(500))


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return an error in the format of OpenAI and llama-server."""
    error = {"message": problem.message, "type": problem.type, "code": problem.status, "param": None, **problem.fields}
    return {"error": error}


def error_body(problem: Problem, scope: Scope) -> Mapping[str, object]:
    """Return an error in the protocol's format that the path of a request belongs to."""
    formats: Mapping[str, ErrorFormat] = getattr(scope["app"].state, "error_formats", {}) if "app" in scope else {}
    prefix = next((prefix for prefix in formats if scope["path"].startswith(prefix)), None)
    if prefix is not None:
        try:
            body: object = formats[prefix](problem, scope["state"]["request_id"])
            if not isinstance(body, Mapping):
                raise TypeError(f"the format of errors below {prefix} returned {body!r:.60}, not a mapping")
            return body
        except Exception as error:  # of a plugin
            logs.failed(error)
    return openai_error(problem)


def respond(problem: Problem, scope: Scope) -> Response:
    """Return the response of an error."""
    body = error_body(problem, scope)
    retry = {"Retry-After": _RETRY_SECONDS} if problem.status in (429, 503) else {}
    return Response(orjson.dumps(body), problem.status, {**retry, **problem.headers}, "application/json")


def bad_request(message: str) -> HTTPException:
    return HTTPException(400, message)


def no_model(name: str, served: Sequence[str]) -> HTTPException:
    """Return the error of a name that is not among ``served``, of which clients may have made a thousand."""
    listed = ", ".join(f"{other:.100}" for other in served[:_LISTED])
    more = f" and {len(served) - _LISTED} more" if len(served) > _LISTED else ""
    return HTTPException(404, f"there is no model {name!r:.100}; served: {listed}{more}")


class UnwritableError(HTTPException):
    """A file of the server cannot be changed now: its disk may be full, or have an error. The log says so, too."""

    def __init__(self, content: str, reason: object) -> None:
        super().__init__(507, f"{content} cannot be kept: {reason}")


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
    problem = problem_of(error)
    if problem.message == HTTPStatus(problem.status).phrase:  # raised by the router
        problem = replace(problem, message=_unknown(request, problem.status))
    expected = HTTPException, pumice.MissingPackageError, pumice.UnavailableError, pumice.RequestTimeoutError
    foreseen = isinstance(error, expected) and problem.status in (501, 503, 507)
    foreseen = foreseen and not isinstance(error, UnwritableError)
    if problem.status >= 500 and not foreseen:
        logs.failed(error)
    return respond(problem, request.scope)


def _unknown(request: Request, status: int) -> str:
    path = request.scope["path"]
    return f"{path} does not support {request.method}" if status == 405 else f"there is no endpoint {path!r:.200}"


def _type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
