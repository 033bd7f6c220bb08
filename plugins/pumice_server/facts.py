"""Endpoints for health, the list of models, properties, metrics, and loading and unloading models."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from typing import Annotated, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answer_types import ModelInfo, ModelList, Properties, Status, Success
from pumice_server.answers import json_response, titled
from pumice_server.bodies import NamedModelBody
from pumice_server.errors import no_model
from pumice_server.figures import build_info
from pumice_server.model_service import BEAT_SECONDS, ModelService
from pumice_server.models import Models, service_of
from pumice_server.pools import FACTS
from pumice_server.properties import properties
from pumice_server.served_model import ServedModel
from pumice_server.service import Service
from pumice_server.summaries import capabilities, listed, meta, summaries_of, summary_of
from pumice_server.work import aside

logger = logging.getLogger("pumice")


async def live(request: Request) -> Annotated[Response, Status]:
    """Report that the process answers."""
    return json_response({"status": "ok"})


async def health(request: Request) -> Annotated[Response, Status]:
    """Report whether the engine answers: 200, or 503 while the model loads and if no step ends for ten seconds."""
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
    return json_response({"status": "ok"})


async def ready(request: Request) -> Annotated[Response, Status]:
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


async def list_models(request: Request) -> Annotated[Response, ModelList]:
    """List the served models, in OpenAI's form, with Ollama's beside it as in llama-server."""
    models: Models = request.app.state.models
    summaries = await summaries_of(models.served_models)
    compat = models.settings.compat
    data = [
        _described(served_model, name, summary, compat)
        for served_model, summary in summaries
        for name in (served_model.name, *served_model.variants, *served_model.scales)
    ]
    listing = [
        {**listed(served_model, summary), "type": "model", "capabilities": _abilities(served_model, summary)}
        for served_model, summary in summaries
    ]
    return json_response({"models": listing, "object": "list", "data": data})


def _abilities(served_model: ServedModel, summary: pumice.Summary | None) -> list[str]:
    """Return the capabilities of a model by the names of Ollama and llama-server."""
    service = served_model.service
    abilities = capabilities(summary, service, served_model.projector)
    watches = service is not None and service.watches
    return [*abilities, *(["video"] if watches else []), *(["multimodal"] if "vision" in abilities else [])]


async def show_model(request: Request) -> Annotated[Response, ModelInfo]:
    """Describe a served model."""
    models: Models = request.app.state.models
    name = request.path_params["name"]
    served_model = models.known(name)
    if served_model is None:
        raise no_model(name, [other for served_entry in models.served_models for other in served_entry.names])
    return json_response(_described(served_model, name, await summary_of(served_model), models.settings.compat))


def _described(served_model: ServedModel, name: str, summary: pumice.Summary | None, compat: bool) -> dict[str, Any]:
    description: dict[str, Any] = {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": served_model.created,
        "created_at": datetime.fromtimestamp(served_model.created, UTC).isoformat(),
        "owned_by": "llamacpp" if compat else "pumice",
        "parent": served_model.name if name not in served_model.spec.names else None,
        "aliases": [other for other in served_model.spec.names if compat or other != name],
        "tags": served_model.spec.tags,
        "status": {"value": served_model.status},
    }
    if summary:
        description["meta"] = {
            **meta(summary),
            **({"n_ctx": served_model.service.model.n_ctx} if served_model.service else {}),
        }
    return description


async def props(request: Request) -> Annotated[Response, Properties]:
    """Return llama-server's properties of a model, or of a server with several.

    ``?model=``: Name of the model.
    """
    models: Models = request.app.state.models
    name = request.query_params.get("model")
    kept = "server" if models.settings.conversations else "browser"
    page = {"conversations": kept, "tools": request.app.state.tools is not None}
    if name is None and not models.single:
        answer = {"role": "router", "max_instances": models.settings.max_models, "models_autoload": True}
        return json_response({**answer, "ui_settings": page, "build_info": build_info(models.settings.compat)})
    served_model = models.find(name)
    if served_model.sleeps:  # answer without loading it
        return json_response({**(served_model.properties or {}), "ui_settings": page, "is_sleeping": True})
    service = (
        Service(served_model.service) if served_model.service else await service_of(request, name)
    )  # a query is no use
    answer = await FACTS(properties, served_model, service, models.settings)
    return json_response({**answer, "ui_settings": page, "is_sleeping": False})


async def change_props(request: Request) -> Response:
    """Refuse to change properties, which are fixed while a model is served."""
    raise HTTPException(501, "properties cannot be changed")


async def metrics(request: Request) -> Response:
    """Return metrics in Prometheus' text format.

    ``?names=``: `pumice` or `llamacpp`, whose names they have.

    An engine that died or does not answer has no gauges; the counters and the other models' metrics are told.
    """
    models: Models = request.app.state.models
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


async def snapshot_of(service: ModelService) -> pumice.Snapshot:
    """Return the state of the engine. Raises HTTPException if the engine does not answer in time."""
    try:
        return await service.snapshot(BEAT_SECONDS)
    except TimeoutError:
        raise HTTPException(503, f"the engine has not finished a batch for {BEAT_SECONDS:.0f} seconds") from None


async def _snapshot_if_alive(service: ModelService) -> pumice.Snapshot | None:
    with contextlib.suppress(TimeoutError, pumice.EngineDiedError, pumice.ModelClosedError):
        return await service.snapshot(BEAT_SECONDS)
    return None


async def load_model(request: Request, body: NamedModelBody) -> Annotated[Response, Success]:
    """Begin to load a model; the list of models has its state."""
    models: Models = request.app.state.models
    models.load(_named(models, body.model))
    return json_response({"success": True})


async def unload_model(request: Request, body: NamedModelBody) -> Annotated[Response, Success]:
    """Unload a model that is not in use, or cancel a download that `POST /models` began."""
    models: Models = request.app.state.models
    if models.pulls.cancel(body.model):
        models.events.tell("download_failed", body.model, {"error": "cancelled"})
        return json_response({"success": True})
    served_model = _named(models, body.model)
    if served_model.service is None:
        raise HTTPException(400, "model is not loaded")
    await models.unload(served_model)
    return json_response({"success": True})


def _named(models: Models, name: str) -> ServedModel:
    if not name:
        raise HTTPException(400, "model name is missing from the request")
    served_model = models.known(name)  # a single model answers to any name, but is only unloaded by its own
    if served_model is None:
        raise no_model(name, models.names)
    return served_model
