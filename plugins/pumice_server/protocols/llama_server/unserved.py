"""Endpoints of llama-server that are refused."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


async def no_slots(request: Request) -> Response:
    """Refuse to list the slots, with `--no-slots`."""
    raise HTTPException(501, "/slots is not served: the server was started with --no-slots")


async def no_proxy(request: Request) -> Response:
    """Refuse to fetch pages of other servers."""
    raise HTTPException(501, "the server fetches nothing for pages")
