"""Web pages that may ask: the origins that the gate trusts, and what browsers are told of them (CORS)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response

from pumice_server.answers import titled
from pumice_server.settings import LOCAL

_LOCAL = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://")  # what stands before the host of an origin
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")


def trusts(origins: Sequence[str], origin: str, host: str) -> bool:
    """Return whether a page of ``origin`` may ask: it is named, or is one of the server's own (``host``)."""
    named = "*" in origins or origin in origins or (LOCAL in origins and _LOCAL.fullmatch(origin) is not None)
    return named or _SCHEME.sub("", origin).lower() == host.lower()


def cors(origins: Sequence[str], compat: bool) -> list[Middleware]:
    """Return the middleware that tells browsers; none where no page may ask. ``compat``: as llama-server tells it."""
    if not origins:
        return []
    return [
        Middleware(
            _PeerCORS if compat else CORSMiddleware,
            allow_origins=[origin for origin in origins if origin != LOCAL],
            allow_origin_regex=_LOCAL.pattern if LOCAL in origins else None,
            allow_methods=_METHODS if compat else ["*"],
            allow_headers=["*"],
            allow_credentials=compat,  # there are none: a key is a header that a page has to know
        )
    ]


class _PeerCORS(CORSMiddleware):
    """Answers every preflight with 200, any header allowed; the origin is named where its pages may ask."""

    def preflight_response(self, request_headers: Headers) -> Response:
        told = super().preflight_response(request_headers).headers
        kept = {name: value for name, value in told.items() if name.startswith(("access-control-", "vary"))}
        return titled(PlainTextResponse("", headers={**kept, "access-control-allow-headers": "*"}))
