"""Endpoints of llama-server that Pumice does not serve, with the reasons."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_PROXY = "the server fetches nothing for pages"

REASONS = {
    ("GET", "/cors-proxy"): _PROXY,
    ("POST", "/cors-proxy"): _PROXY,
}
"""Reasons by method and path."""


_SWITCHES = {"/slots": "--no-slots", "/metrics": "--compat without --metrics"}


async def switched_off(request: Request) -> Response:
    """Refuse an endpoint that the command line switches off."""
    path = request.scope["path"]
    raise HTTPException(501, f"{path} is not served: the server was started with {_SWITCHES[path]}")


async def hidden(request: Request) -> Response:
    """Hide the page, with ``--no-ui``."""
    raise HTTPException(404)


async def refuse(request: Request) -> Response:
    raise HTTPException(501, REASONS[request.method.replace("HEAD", "GET"), request.scope["path"]])
