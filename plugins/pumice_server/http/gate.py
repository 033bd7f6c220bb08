"""Admit requests by Host header, origin, API key and rate, and give each an id."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Container
from contextlib import AsyncExitStack
from functools import wraps

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumice.plugin.unstable import CLIENT
from pumice_server import logs
from pumice_server.errors import answer_error, problem_of, respond, too_large
from pumice_server.http import tracing
from pumice_server.http.origins import trusts
from pumice_server.http.rates import RateLimits
from pumice_server.keys import SCOPES, APIKeys, Key
from pumice_server.settings import Settings

CLIENT_HEADER = "x-pumice-client"
"""Names the client for whom the server answers a row of a batch."""

ROW_SECONDS = 86_400.0
"""Maximum time of a row of a batch, from when the engine gets it."""

FILES = "/page"
"""Where the files of the web page are."""

_UNANSWERED = 499  # status of a request without a response
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PAGES = ("/", "/docs")  # links on other pages may lead here, and to files below FILES
_ID_HEADERS = ("X-Request-Id", "Request-Id")  # the second one is of Anthropic's API
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[([0-9A-Za-z:.%]+)\]|([^\s\[\]@/\\?#:]+))(?::[0-9]*)?")
_LENGTH = re.compile(r"[0-9]{1,20}")  # what is more than that is no HTTP
Answering = Callable[[Request], Awaitable[Response]]

_FOREIGN = "requests of web pages from other origins are refused; --cors-origins allows an origin"


class Inside:
    """Passes requests on that the server itself makes for a client, whom the header ``CLIENT_HEADER`` names.

    They count for the rate limits of that client, and end with its key, but have the time of a batch.
    """

    def __init__(self, app: ASGIApp, settings: Settings, rates: RateLimits) -> None:
        assert isinstance(settings.keys, APIKeys)
        self._app, self._keys, self._rates = app, settings.keys, rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        client = Headers(scope=scope).get(CLIENT_HEADER, "")
        salt = client if len(self._keys) > 1 else ""
        state.update(request_id=secrets.token_hex(12), client=client, scopes=frozenset(SCOPES[:1]), cache_salt=salt)
        state["timeout"] = ROW_SECONDS
        CLIENT.set(client or "batches")
        logs.begin({"id": state["request_id"], "method": scope["method"], "path": scope["path"]})

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = state["request_id"]
            await send(message)

        try:
            if not self._keys.admits(client):
                raise HTTPException(401, "the API key of this batch is no longer valid")
            self._rates.begin(client)
        except HTTPException as error:
            await respond(problem_of(error), scope)(scope, receive, send_with_id)
            return
        try:
            async with AsyncExitStack() as state["stack"]:
                await self._app(scope, receive, send_with_id)
        finally:
            self._rates.end(client, logs.n_tokens())


class Gate:
    """Passes admitted requests on, with ``request_id``, ``client``, ``scopes`` and ``cache_salt`` in their state.

    On loopback addresses the Host header must name this machine, so that no web page reaches the server under a
    name of its own (DNS rebinding).
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        count: Callable[[str, int], None],
        public: Container[str] = (),
        uploads: tuple[str, ...] = (),
        stopping: Callable[[], bool] = lambda: False,
        rates: RateLimits | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: Application that admitted requests reach.
            settings: Settings of the server.
            count: Called with the name of each endpoint that answered, and the status.
            public: Paths that need no key, besides those of the page.
            uploads: Beginnings of the paths of uploaded files, which may be larger than other bodies.
            stopping: Returns True while the server stops.
            rates: Rate limits (default: those of the settings, for this gate alone).
        """
        self._app = app
        self._count = count
        self._public, self._uploads = public, uploads
        self._stopping = stopping
        self._max_body = settings.max_body
        self._max_file = max(settings.max_body, settings.upload_bytes)
        self._origins = settings.pages
        names = {*_LOOPBACK, *settings.addresses, *settings.hosts}
        self._hosts = {name.lower() for name in names} if settings.is_loopback or settings.hosts else None
        assert isinstance(settings.keys, APIKeys)
        self._keys = settings.keys
        self._rates = rates or RateLimits(settings.max_requests, settings.max_tokens_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sent_id = headers.get("x-request-id", "")
        request_id = sent_id if _ID.fullmatch(sent_id) else secrets.token_hex(12)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        facts = {"id": request_id, "address": _address(scope), "method": scope["method"], "path": scope["path"]}
        logs.begin(facts)
        status = _UNANSWERED
        is_whole = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, is_whole
            is_whole = message["type"] == "http.response.body" and not message.get("more_body")
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = MutableHeaders(scope=message)
                response_headers.update(dict.fromkeys(_ID_HEADERS, request_id))
                response_headers.update(self._rates.headers(state["client"]) if state.get("client") is not None else {})
                self._count(getattr(scope.get("endpoint"), "__name__", "none"), status)
            await send(message)

        with tracing.span(scope["method"], scope["path"], headers) as span:
            try:
                await self._serve(scope, receive, send_with_id, headers)
            except asyncio.CancelledError:
                if status != _UNANSWERED or not self._stopping():
                    raise
                problem = problem_of(HTTPException(503, "the server is stopping", {"Connection": "close"}))
                await respond(problem, scope)(scope, receive, send_with_id)
            except Exception as error:  # Starlette would answer, but also end the connection
                if status != _UNANSWERED:
                    raise
                response = await answer_error(Request(scope), error)
                await response(scope, receive, send_with_id)
            finally:
                if status != _UNANSWERED and not is_whole:
                    logs.about(left=True)
                tracing.describe(span, logs.end(status))
                self._rates.end(state.get("client", ""), logs.n_tokens())

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        state = scope["state"]
        try:
            key = self._admit(scope["path"], headers)
            state["client"], state["scopes"] = key.digest.hex() if key else "", key.scopes if key else SCOPES
            state["cache_salt"] = state["client"] if len(self._keys) > 1 else ""
            CLIENT.set(state["client"] or _address(scope))
            if scope["method"] == "POST":
                self._rates.begin(state["client"])
        except HTTPException as error:
            await respond(problem_of(error), scope)(scope, receive, send)
            return
        async with AsyncExitStack() as state["stack"]:  # resources that the request holds until its response ends
            await self._app(scope, receive, send)

    def _admit(self, path: str, headers: Headers) -> Key | None:
        """Return the key of the client, if one is needed. Raises HTTPException if the client is not admitted."""
        if "transfer-encoding" in headers and "content-length" in headers:
            # If a proxy and this server disagree on which counts, one reads the rest of the body as another request.
            both = "a request has Content-Length or Transfer-Encoding, and not both"
            raise HTTPException(400, both, {"Connection": "close"})
        length = headers.get("content-length", "")
        most = self._max_file if path.startswith(self._uploads) else self._max_body
        if _LENGTH.fullmatch(length) and int(length) > most:
            raise too_large(most)
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            raise HTTPException(403, "the Host header names another machine; --allowed-host allows a name")
        origin = headers.get("origin")
        if origin and not trusts(self._origins, origin, host):
            raise HTTPException(403, _FOREIGN)
        of_page = path in _PAGES or path.startswith(f"{FILES}/")
        is_link = of_page and headers.get("sec-fetch-mode") == "navigate"
        if not (origin or is_link) and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise HTTPException(403, _FOREIGN)
        if not self._keys or of_page or path in self._public:
            return None
        bearer = headers.get("authorization", "")
        scheme, _, token = bearer.partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        admitted = self._keys.find(key)
        if admitted is None:
            raise HTTPException(401, "a valid API key is needed: Authorization: Bearer KEY")
        logs.about(key=admitted.name or None)
        return admitted


def _address(scope: Scope) -> str:
    """Return the IP address of a request's client."""
    return str((scope.get("client") or ("unknown",))[0])


def scoped(endpoint: Answering, scope: str) -> Answering:
    """Return an endpoint that only clients with a scope may use; without keys all clients have every scope."""

    @wraps(endpoint)
    async def allowed(request: Request) -> Response:
        if scope not in request.state.scopes:
            raise HTTPException(403, f"this API key lacks the scope {scope!r}, which the endpoint needs")
        return await endpoint(request)

    return allowed


def _name(host: str) -> str | None:
    """Return the name in a Host header, without its port, or None if the header is malformed."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else None
