"""The application: endpoints and their paths, behind the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, get_type_hints

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Lifespan

import pumice
from pumice.mcp import HostedTools
from pumice_server import (
    adapters,
    anthropic_messages,
    control,
    conversations,
    documents,
    embeddings,
    facts,
    infill,
    model_changes,
    native,
    ollama,
    ollama_blobs,
    ollama_create,
    ollama_facts,
    ollama_pull,
    openai_responses,
    resumable,
    self_description,
    slots,
    speech,
    static,
    texts,
    transcriptions,
    unserved,
    vertex,
)
from pumice_server.batch.rows import URLS
from pumice_server.body import prepare, read_body
from pumice_server.errors import answer_error
from pumice_server.gate import BLOBS, Endpoint, Gate, Inside, scoped
from pumice_server.jobs import endpoints as jobs
from pumice_server.jobs.runner import Jobs
from pumice_server.jobs.store import JobStore
from pumice_server.models import Models
from pumice_server.openai_chat import chat_completions
from pumice_server.openai_completions import completions
from pumice_server.openapi import Operation, describe
from pumice_server.origins import cors
from pumice_server.rates import RateLimits
from pumice_server.response_store import ResponseStore
from pumice_server.settings import Settings
from pumice_server.tools import endpoints as tool_endpoints

Handler = Callable[..., Awaitable[Response]]
"""An endpoint, which may take the body of the request too."""

GET: Mapping[Handler, Sequence[str]] = {
    static.index: ["/"],
    self_description.openapi: ["/openapi.json"],
    self_description.docs: ["/docs"],
    facts.health: ["/health", "/v1/health"],
    openai_responses.get_response: ["/v1/responses/{id}"],
    facts.live: ["/livez"],
    facts.ready: ["/readyz"],
    facts.list_models: ["/v1/models", "/models"],
    facts.show_model: ["/v1/models/{name:path}"],
    model_changes.follow: ["/models/sse"],
    jobs.list_files: ["/v1/files"],
    jobs.show_file: ["/v1/files/{id}"],
    jobs.file_content: ["/v1/files/{id}/content"],
    jobs.list_batches: ["/v1/batches"],
    jobs.show_batch: ["/v1/batches/{id}"],
    ollama_facts.tags: ["/api/tags"],
    ollama_facts.running: ["/api/ps"],
    ollama_facts.version: ["/api/version"],
    ollama_blobs.find_blob: [f"{BLOBS}{{digest}}"],
    facts.props: ["/props"],
    slots.slots: ["/slots"],
    adapters.list_adapters: ["/lora-adapters"],
    tool_endpoints.list_tools: ["/tools"],
    resumable.resume: ["/v1/stream", "/v1/stream/{id:path}"],
    facts.metrics: ["/metrics"],
}
DELETE: Mapping[Handler, Sequence[str]] = {
    resumable.stop: ["/v1/stream", "/v1/stream/{id:path}"],
    openai_responses.delete_response: ["/v1/responses/{id}"],
    ollama_create.delete: ["/api/delete"],
    model_changes.delete: ["/models"],
    jobs.delete_file: ["/v1/files/{id}"],
}
POST: Mapping[Handler, Sequence[str]] = {
    openai_responses.responses: ["/v1/responses", "/responses"],
    openai_responses.input_tokens: ["/v1/responses/input_tokens", "/responses/input_tokens"],
    chat_completions: ["/v1/chat/completions", "/chat/completions"],
    completions: ["/v1/completions"],
    control.control: ["/v1/chat/completions/control"],
    speech.speech: ["/v1/audio/speech", "/audio/speech"],
    transcriptions.transcriptions: ["/v1/audio/transcriptions", "/audio/transcriptions"],
    transcriptions.translations: ["/v1/audio/translations", "/audio/translations"],
    jobs.upload: ["/v1/files"],
    jobs.create_batch: ["/v1/batches"],
    jobs.cancel_batch: ["/v1/batches/{id}/cancel"],
    anthropic_messages.messages: ["/v1/messages"],
    anthropic_messages.count_tokens: ["/v1/messages/count_tokens"],
    ollama.chat: ["/api/chat"],
    ollama.generate: ["/api/generate"],
    ollama_facts.show: ["/api/show"],
    native.completion: ["/completion", "/completions"],
    embeddings.embeddings: ["/v1/embeddings"],
    embeddings.native: ["/embedding", "/embeddings"],
    embeddings.ollama: ["/api/embed"],
    embeddings.ollama_one: ["/api/embeddings"],
    embeddings.rerank: ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"],
    infill.infill: ["/infill"],
    slots.act: ["/slots/{id}"],
    tool_endpoints.call_tool: ["/tools"],
    documents.extract_text: ["/extract-text"],
    resumable.lookup: ["/v1/streams/lookup"],
    adapters.set_adapters: ["/lora-adapters"],
    ollama_pull.pull: ["/api/pull"],
    ollama_create.create: ["/api/create"],
    ollama_create.copy: ["/api/copy"],
    ollama_blobs.upload: [f"{BLOBS}{{digest}}"],
    ollama_blobs.refuse_push: ["/api/push"],
    model_changes.fetch: ["/models"],
    facts.load_model: ["/models/load"],
    facts.unload_model: ["/models/unload"],
    facts.change_props: ["/props"],
    texts.tokenize: ["/tokenize"],
    texts.detokenize: ["/detokenize"],
    texts.apply_template: ["/apply-template"],
    texts.input_tokens: ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"],
}
"""Endpoints, and the paths of each."""

PUBLIC = (static.index, self_description.openapi, self_description.docs, facts.health, facts.live, facts.ready)
"""Endpoints that need no key."""

ADMIN = (
    facts.metrics,
    facts.load_model,
    facts.unload_model,
    ollama_pull.pull,
    model_changes.fetch,
    model_changes.delete,
    ollama_blobs.find_blob,
    ollama_blobs.upload,
    ollama_create.create,
    ollama_create.copy,
    ollama_create.delete,
    adapters.set_adapters,
    slots.slots,
    slots.act,
)
"""Endpoints that change or show the work of others, which need the scope admin. All others need infer."""


def make_application(models: Models, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """Return the application; ``lifespan`` runs from the server's start to its end."""
    settings = models.settings
    routes = [
        Route(path, _allowed(endpoint, settings), methods=[method])
        for method, endpoints in (("GET", GET), ("POST", POST), ("DELETE", DELETE))
        for endpoint, paths in endpoints.items()
        for path in paths
    ]
    routes += [Route(path, _allowed(unserved.refuse, settings), methods=[method]) for method, path in unserved.REASONS]
    if settings.predict_route:
        routes.append(Route(settings.predict_route, _allowed(vertex.predict, settings), methods=["POST"]))
    if settings.conversations:
        routes += conversations.routes(settings.conversations)
    public = frozenset(path for endpoint in PUBLIC for path in GET[endpoint])
    rates = RateLimits(settings.max_requests, settings.max_tokens_per_minute)
    gate = Middleware(
        Gate,
        settings=settings,
        count=models.metrics.request,
        public=public,
        stopping=lambda: models.draining,
        rates=rates,
    )
    page = [Mount(static.PREFIX, static.PageFiles())] if settings.page else []
    middleware = [*cors(settings.pages, settings.compat), gate]
    application = _starlette(models, [*routes, *page], middleware, rates, lifespan)
    application.state.jobs = None
    if settings.batches:
        application.state.jobs = Jobs(JobStore(settings.batches / "batches.db"), _inner(models, rates))
    application.state.description = self_description.APIDescription(operations(settings.predict_route))
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
    application.state.models = models
    application.state.responses = ResponseStore()
    application.state.running = control.RunningAnswers()
    application.state.tools = None
    application.state.rates = rates
    application.state.streams = resumable.KeptStreams()
    return application


def _inner(models: Models, rates: RateLimits) -> Starlette:
    """Return the application that answers rows of batches: without a gate, since their clients were admitted."""
    routes = [
        Route(path, _with_body(endpoint), methods=["POST"])
        for endpoint, paths in POST.items()
        for path in paths
        if path in URLS
    ]
    return _starlette(models, routes, [Middleware(Inside, settings=models.settings, rates=rates)], rates)


def scope_of(endpoint: Handler) -> str:
    """Return the scope that a key needs for an endpoint, or ``""`` if no key is needed."""
    return "" if endpoint in PUBLIC else "admin" if endpoint in ADMIN else "infer"


def operations(predict_route: str | None = None) -> list[Operation]:
    """Return every endpoint as ``/openapi.json`` describes it.

    Args:
        predict_route: Path of Vertex AI's predictions, if they are served.
    """
    post = {**POST, vertex.predict: [predict_route]} if predict_route else POST
    return [
        describe(endpoint, method, paths, scope_of(endpoint), body_of(endpoint), answers_of(endpoint))
        for method, endpoints in (("GET", GET), ("POST", post), ("DELETE", DELETE))
        for endpoint, paths in endpoints.items()
    ]


def _allowed(endpoint: Handler, settings: Settings) -> Endpoint:
    """Return an endpoint for clients with its scope, or the refusal of an endpoint that is switched off."""
    off: dict[Handler, bool] = {
        static.index: not settings.page,
        slots.slots: not settings.slots,
        facts.metrics: not settings.metrics,
    }
    if off.get(endpoint):
        return unserved.hidden if endpoint is static.index else unserved.switched_off
    scope = scope_of(endpoint)
    return scoped(_with_body(endpoint), scope) if scope else endpoint


def body_of(endpoint: Handler) -> Any:
    """Return the kind of body that an endpoint declares, or None."""
    return get_type_hints(endpoint, include_extras=True).get("body")


def answers_of(endpoint: Handler) -> Sequence[Any]:
    """Return the kinds of answer, and of a stream's parts, that an endpoint declares."""
    return getattr(get_type_hints(endpoint, include_extras=True)["return"], "__metadata__", ())


def prepare_bodies() -> None:
    """Prepare for the bodies of all endpoints."""
    for kind in filter(None, map(body_of, POST)):
        prepare(kind)


def _with_body(endpoint: Handler) -> Endpoint:
    """Return an endpoint that reads the body of the request for one that declares it."""
    kind = body_of(endpoint)
    if kind is None:
        return endpoint

    @wraps(endpoint)
    async def read(request: Request) -> Response:
        response: Response = await endpoint(request, await read_body(request, kind))
        return response

    return read
