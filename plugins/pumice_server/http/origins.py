"""Origins of web pages that the gate trusts, and the CORS headers for browsers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response

from pumice_server.http.answers import titled
from pumice_server.settings import LOCAL

_LOCAL = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://")  # precedes the host of an origin
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")


def trusts(origins: Sequence[str], origin: str, host: str) -> bool:
    """Return True if pages of ``origin`` are trusted: it is listed, or is the server's own (``host``)."""
    named = "*" in origins or origin in origins or (LOCAL in origins and _LOCAL.fullmatch(origin) is not None)
    return named or _SCHEME.sub("", origin).lower() == host.lower()


def cors(origins: Sequence[str], compat: bool) -> list[Middleware]:
    """Return the CORS middleware, if any origin is trusted; with ``compat`` its headers are llama-server's."""
    if not origins:
        return []
    return [
        Middleware(
            _PeerCORS if compat else CORSMiddleware,
            allow_origins=[origin for origin in origins if origin != LOCAL],
            allow_origin_regex=_LOCAL.pattern if LOCAL in origins else None,
            allow_methods=_METHODS if compat else ["*"],
            allow_headers=["*"],
            allow_credentials=compat,  # keys are headers, not cookies, so this allows nothing more
        )
    ]


class _PeerCORS(CORSMiddleware):
    """Answers every preflight with 200 and allows any header; trusted origins are named."""

    def preflight_response(self, request_headers: Headers) -> Response:
        headers = super().preflight_response(request_headers).headers
        kept = {name: value for name, value in headers.items() if name.startswith(("access-control-", "vary"))}
        return titled(PlainTextResponse("", headers={**kept, "access-control-allow-headers": "*"}))
