"""The server describes itself: ``/openapi.json`` for programs, ``/docs`` for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pumice_server.endpoints.openapi import Operation, document
from pumice_server.endpoints.reference import HEADERS, page
from pumice_server.http.answers import JSON, Whole, to_json
from pumice_server.work import aside


class APIDescription:
    """The descriptions of the endpoints, made when they are first asked for."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    @cached_property
    def json(self) -> bytes:
        return to_json(document(self._operations))

    @cached_property
    def html(self) -> str:
        return page(self._operations)


async def openapi(request: Request) -> Response:
    """Return the description of all endpoints and bodies in the format of OpenAPI 3.1."""
    description: APIDescription = request.app.state.description
    return Whole(await aside(lambda: description.json), media_type=JSON)


async def docs(request: Request) -> Response:
    """Return a page with all endpoints and the fields of their bodies."""
    description: APIDescription = request.app.state.description
    return HTMLResponse(await aside(lambda: description.html), headers=HEADERS)
