"""The application of ``pumice route``: it passes requests on, and streams their answers back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial

import httpx2
import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pumice_server.errors import answer_error
from pumice_server.http.answers import unless_gone
from pumice_server.http.body import arriving
from pumice_server.http.gate import Gate
from pumice_server.routing.servers import Server, Servers, prompt_of, reason_of
from pumice_server.settings import Settings

_CONNECT_SECONDS = 5.0
_OF_CONNECTION = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "content-length", "expect"),
}
"""Headers of one connection, which the other one has of its own."""
_OF_CLIENT = {"host", "origin", "x-request-id", *(f"sec-fetch-{name}" for name in ("site", "mode", "dest", "user"))}
"""Headers by which the gate has decided already."""
_BUSY = (429, 503)  # statuses with which a server refuses what another one may have room for
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]

logger = logging.getLogger("pumice")
_KEPT = "stored responses are kept by the server that gave them: send the whole input, or ask that server itself"


def make_router(servers: Servers, settings: Settings, listening: Callable[[], Awaitable[None]]) -> Starlette:
    """Return the application; ``listening`` is called when it begins."""
    router = _Router(servers)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with router.client:
            watching = asyncio.create_task(servers.watch(router.client))
            await listening()
            try:
                yield
            finally:
                watching.cancel()

    application = Starlette(
        routes=[
            Route("/health", router.health),
            Route("/metrics", router.metrics),
            Route("/{path:path}", router.pass_on, methods=_METHODS),
        ],
        middleware=[Middleware(Gate, settings=settings, count=lambda *_: None, public={"/health"})],
        exception_handlers=dict.fromkeys((HTTPException, ClientDisconnect, Exception), answer_error),
        lifespan=lifespan,
    )
    application.state.settings = settings
    return application


class _Router:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        self.client = httpx2.AsyncClient(limits=limits, timeout=timeout, trust_env=False)
        self._registry = CollectorRegistry()
        gauge = partial(Gauge, labelnames=["server"], registry=self._registry)
        up = gauge("pumice_route_up", "1 if the server answers")
        running = gauge("pumice_route_running", "Requests under way")
        for server in servers.all:
            up.labels(server.url).set_function(partial(getattr, server, "is_up"))
            running.labels(server.url).set_function(partial(getattr, server, "n_running"))
        self._requests = Counter(
            "pumice_route_requests", "Answers of a server, by status", ["server", "status"], registry=self._registry
        )
        self._repeated = Counter(
            "pumice_route_repeated", "Requests that another server had to take", ["server"], registry=self._registry
        )

    async def health(self, _: Request) -> Response:
        """Report which servers answer; 503 if none does."""
        up = {server.url: server.is_up for server in self._servers.all}
        body = {"status": "ok" if any(up.values()) else "error", "servers": up}
        return Response(orjson.dumps(body), 200 if any(up.values()) else 503, media_type="application/json")

    async def metrics(self, _: Request) -> Response:
        """Report the requests of each server, in Prometheus' format."""
        return Response(generate_latest(self._registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def pass_on(self, request: Request) -> Response:
        """Answer a request by a server that has room, or by the last that refused."""
        async with arriving(request) as parts:
            body = b"".join(parts)
        prompt = prompt_of(body) if request.method == "POST" else None
        if prompt and request.url.path.endswith("/responses") and _names_kept(body):
            raise HTTPException(400, _KEPT)
        tried: list[Server] = []
        problem = "there is no server"
        while server := self._servers.choose(prompt, tried):
            tried.append(server)
            server.n_running += 1
            release = partial(_release, server)
            try:
                answer = await unless_gone(request, self.client.send(self._request(server, request, body), stream=True))
            except httpx2.TransportError as error:
                release()
                problem = reason_of(error)
                server.note(problem)
                self._repeated.labels(server.url).inc()
                continue
            except BaseException:
                release()
                raise
            if answer.status_code in _BUSY and len(tried) < len(self._servers.all):
                release()
                await answer.aclose()
                self._repeated.labels(server.url).inc()
                continue
            self._requests.labels(server.url, answer.status_code).inc()
            return _Passed(answer, release)
        raise HTTPException(503, f"no server answers: {problem}")

    def _request(self, server: Server, request: Request, body: bytes) -> httpx2.Request:
        scope = request.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        url = httpx2.URL(server.url)
        url = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + target)
        headers = _without(request.headers.items(), _OF_CONNECTION | _OF_CLIENT)
        headers.append(("x-request-id", request.state.request_id))
        return self.client.build_request(request.method, url, headers=headers, content=body)


class _Passed(StreamingResponse):
    """The answer of a server, in the parts in which it comes."""

    def __init__(self, answer: httpx2.Response, release: Callable[[], None]) -> None:
        super().__init__(answer.aiter_raw(), answer.status_code)
        headers = _without(answer.headers.multi_items(), _OF_CONNECTION - {"content-length"} | {"date", "server"})
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._answer, self._release = answer, release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except httpx2.TransportError as error:
            logger.warning("%s ended within an answer: %s", self._answer.url, reason_of(error))
            raise asyncio.CancelledError from None  # uvicorn closes the connection: the client sees that a part lacks
        finally:
            self._release()
            await self._answer.aclose()  # ends the request if the client has left


def _release(server: Server) -> None:
    server.n_running -= 1


def _without(headers: Iterable[tuple[str, str]], names: set[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in names]


def _names_kept(body: bytes) -> bool:
    fields: Mapping[str, object] = orjson.loads(body)
    return any(fields.get(name) for name in ("previous_response_id", "conversation"))
