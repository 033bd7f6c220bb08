"""The application: the endpoints of the registered protocols, admitted by the gate."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache, reduce, wraps
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Lifespan

import pumice
from pumice.config import load_config
from pumice.mcp import HostedTools
from pumice.plugin.unstable import Endpoint, Handler, ServerProtocol
from pumice.registry import get_registry, warn_once
from pumice_server.batch.rows import URLS
from pumice_server.endpoints import conversations, own, self_description, static
from pumice_server.endpoints.openapi import Operation, describe
from pumice_server.errors import answer_error
from pumice_server.http import resumable
from pumice_server.http.answers import Streaming, Whole, json_response
from pumice_server.http.body import prepare, read_body
from pumice_server.http.gate import FILES, Answering, Gate, Inside, scoped
from pumice_server.http.origins import cors
from pumice_server.http.rates import RateLimits
from pumice_server.jobs import endpoints as jobs_endpoints
from pumice_server.jobs.runner import Jobs
from pumice_server.jobs.store import JobStore
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings

logger = logging.getLogger("pumice")


@cache
def protocols() -> list[ServerProtocol]:
    """Return the protocols of the server and of plugins; one that cannot be imported is left out, with a warning."""
    served = [jobs_endpoints.PROTOCOL, own.PROTOCOL]
    registered = get_registry(load_config()).protocols
    for name in registered:
        try:
            served.append(registered[name])
        except pumice.PluginError as error:
            logger.warning("%s; the server goes on without it", error)
    return served


def served_endpoints(settings: Settings) -> Iterator[tuple[ServerProtocol, Endpoint]]:
    """Yield the endpoints of all protocols. Raises PluginError if two of them have the same method and path."""
    owners: dict[tuple[str, str], ServerProtocol] = {}
    for protocol in protocols():
        for endpoint in _endpoints_of(protocol, settings):
            for path in endpoint.paths:
                owner = owners.setdefault((endpoint.method, path), protocol)
                if owner is not protocol:
                    problem = f"the protocols {owner.title} and {protocol.title} both serve {endpoint.method} {path}"
                    raise pumice.PluginError(f"{problem}; plugins.disabled names a plugin to leave out")
            yield protocol, endpoint


def _endpoints_of(protocol: ServerProtocol, settings: Settings) -> Sequence[Endpoint]:
    """Return the endpoints of a protocol; none, with a warning, if its code fails or a handler cannot be described."""
    try:
        endpoints = protocol.endpoints(settings)
        for endpoint in endpoints:
            body_of(endpoint.handler), answers_of(endpoint.handler)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        warn_once(f"protocol {protocol.title}: {problem}; the server goes on without it")
        return []
    return endpoints


def make_application(models: Models, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """Return the application; ``lifespan`` runs from the server's start to its end.

    Raises PluginError if two protocols have an endpoint of the same method and path.
    """
    settings = models.settings
    served = list(served_endpoints(settings))
    endpoints = [endpoint for _, endpoint in served]
    routes = [Route(path, _allowed(each), methods=[each.method]) for each in endpoints for path in each.paths]
    if settings.conversations:
        routes += conversations.routes(settings.conversations)
    rates = RateLimits(settings.max_requests, settings.max_tokens_per_minute)
    gate = Middleware(
        Gate,
        settings=settings,
        count=models.metrics.request,
        public=frozenset(path for each in endpoints if not each.scope for path in each.paths),
        uploads=tuple(path.partition("{")[0] for each in endpoints if each.uploads for path in each.paths),
        stopping=lambda: models.draining,
        rates=rates,
    )
    page = [Mount(FILES, static.PageFiles())] if settings.page else []
    middleware = [*cors(settings.pages, settings.compat), gate]
    application = _starlette(models, [*routes, *page], middleware, rates, lifespan)
    application.state.jobs = None
    if settings.batches:
        application.state.jobs = Jobs(JobStore(settings.batches / "batches.db"), _inner(models, endpoints, rates))
    application.state.description = self_description.APIDescription(operations(settings))
    return application


def run_tools(application: Starlette, tools: HostedTools) -> None:
    """Let requests, and rows of batches, name tools of these MCP servers."""
    application.state.tools = tools
    jobs: Jobs | None = application.state.jobs
    if jobs:
        jobs.run_tools(tools)


def _starlette(
    models: Models,
    routes: Sequence[BaseRoute],
    middleware: Sequence[Middleware],
    rates: RateLimits,
    lifespan: Any = None,
) -> Starlette:
    application = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=dict.fromkeys(
            (HTTPException, ClientDisconnect, pumice.PumiceError, Exception), answer_error
        ),
        lifespan=lifespan,
    )
    state, served = application.state, protocols()
    state.models, state.settings, state.rates, state.tools = models, models.settings, rates, None
    state.streams = resumable.KeptStreams()
    state.error_formats = {protocol.prefix: protocol.error for protocol in served if protocol.prefix and protocol.error}
    for name, make in (item for protocol in served for item in protocol.state.items()):
        setattr(state, name, make())
    return application


def _inner(models: Models, endpoints: Sequence[Endpoint], rates: RateLimits) -> Starlette:
    """Return the application that answers rows of batches: without a gate, since their clients were admitted."""
    routes = [
        Route(path, responding(each.handler), methods=["POST"])
        for each in endpoints
        for path in each.paths
        if path in URLS and each.method == "POST"
    ]
    return _starlette(models, routes, [Middleware(Inside, settings=models.settings, rates=rates)], rates)


def operations(settings: Settings | None = None) -> list[Operation]:
    """Return every endpoint as ``/openapi.json`` describes it."""
    return [
        describe(protocol.title, endpoint, body_of(endpoint.handler), answers_of(endpoint.handler))
        for protocol, endpoint in served_endpoints(settings or Settings())
    ]


def _allowed(endpoint: Endpoint) -> Answering:
    """Return an endpoint for clients with its scope."""
    answer = responding(endpoint.handler)
    return scoped(answer, endpoint.scope) if endpoint.scope else answer


def body_of(handler: Handler) -> Any:
    """Return the kind of body that an endpoint declares, or None."""
    return get_type_hints(handler, include_extras=True).get("body")


def answers_of(handler: Handler) -> Sequence[Any]:
    """Return the kinds of answer and of a stream's parts that an endpoint returns, as far as it declares them."""
    declared = get_type_hints(handler, include_extras=True).get("return", Response)
    if hasattr(declared, "__metadata__"):
        return declared.__metadata__
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    parts = [get_args(member)[0] for member in members if get_origin(member) is Streaming]
    whole = [get_args(member)[0] if get_origin(member) is Whole else member for member in members]
    kinds = [kind for kind in whole if get_origin(kind) is not Streaming and not _is_response(kind)]
    return [reduce(or_, kinds) if kinds else None, *parts]


def _is_response(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Response)


def prepare_bodies() -> None:
    """Prepare for the bodies of all endpoints."""
    for _, endpoint in served_endpoints(Settings()):
        if kind := body_of(endpoint.handler):
            prepare(kind)


def responding(handler: Handler) -> Answering:
    """Return an endpoint that reads the body that a handler declares, and encodes what it returns as JSON."""
    kind = body_of(handler)

    @wraps(handler)
    async def answer(request: Request) -> Response:
        body = () if kind is None else (await read_body(request, kind),)
        try:
            answered = await handler(request, *body)
        except SystemExit as error:  # of a plugin
            raise RuntimeError(f"SystemExit: {error}") from error
        if answered is None and type(None) not in (kinds := answers_of(handler)[0], *get_args(kinds)):
            raise TypeError(f"{handler.__qualname__} returned None")
        return answered if isinstance(answered, Response) else json_response(answered)

    return answer
