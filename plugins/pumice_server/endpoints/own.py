"""The server's own endpoints: its page and description, health, and metrics."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.answer_types import Status
from pumice_server.endpoints import documents, hidden, self_description, static
from pumice_server.http.answers import titled
from pumice_server.http.routes import get, post
from pumice_server.models.model_service import BEAT_SECONDS, ModelService, snapshot_of
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings
from pumice_server.work import aside

logger = logging.getLogger("pumice")


async def live(request: Request) -> Status:
    """Report that the process answers."""
    return Status(status="ok")


async def health(request: Request) -> Status:
    """Report whether the engine answers: 200, or 503 while the model loads and if no batch ends for ten seconds."""
    models: Models = request.app.state.models
    served_model = models.single
    if served_model and served_model.loading:
        done, total = served_model.progress
        raise HTTPException(503, f"Loading model: {100 * done // max(1, total)} %")
    if served_model and served_model.service is None and not served_model.sleeps:
        raise HTTPException(503, f"{served_model.name} is {served_model.status}")
    for other in models.served_models:
        if other.service:
            await snapshot_of(other.service)
    return Status(status="ok")


async def ready(request: Request) -> Status:
    """Report whether a request would be accepted: 503 also if the server stops or the queue is full."""
    models: Models = request.app.state.models
    if models.draining:
        raise HTTPException(503, "the server is stopping")
    served_model = models.single
    if served_model and served_model.service:
        queue = served_model.service.model.config.max_queue
        if 0 <= queue <= (await snapshot_of(served_model.service)).n_waiting:
            raise HTTPException(503, "the queue is full")
    return await health(request)


async def metrics(request: Request) -> Response:
    """Return metrics in Prometheus' text format.

    ``?names=``: `pumice` or `llamacpp`, whose names they have.

    An engine that died or does not answer has no gauges; the counters and the other models' metrics are told.
    """
    models: Models = request.app.state.models
    if not models.settings.metrics:
        raise HTTPException(501, "/metrics is not served: the server was started with --compat without --metrics")
    for served_model in list(models.served_models):
        service = served_model.service  # it may be unloaded, and the model removed, during the await below
        snapshot = await _snapshot_if_alive(service) if service else None
        if served_model not in models.served_models:
            continue
        if service and snapshot:
            models.metrics.engine(served_model.name, snapshot, service.model.memory)
        else:
            models.metrics.no_engine(served_model.name)
    names = request.query_params.get("names", "llamacpp" if models.settings.compat else "pumice")
    text = await aside(models.metrics.llamacpp if names == "llamacpp" else models.metrics.text)
    started = {"Process-Start-Time-Unix": str(models.started)}  # a header of llama-server
    return titled(Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=started))


async def _snapshot_if_alive(service: ModelService) -> pumice.Snapshot | None:
    with contextlib.suppress(TimeoutError, pumice.EngineDiedError, pumice.ModelClosedError):
        return await service.snapshot(BEAT_SECONDS)
    return None


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [
        get(static.index, "/", scope=""),
        get(self_description.openapi, "/openapi.json", scope=""),
        get(self_description.docs, "/docs", scope=""),
        get(health, "/health", "/v1/health", scope=""),
        get(live, "/livez", scope=""),
        get(ready, "/readyz", scope=""),
        get(metrics, "/metrics", scope="admin"),
        post(documents.extract_text, "/extract-text"),
        post(hidden.hidden_states, "/hidden-states"),
    ]


PROTOCOL = ServerProtocol("Pumice", endpoints)
