"""What clients ask before they generate: whether the server is there, and which models it serves."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import json_response, titled
from pumice_server.body import Body
from pumice_server.entry import Entry
from pumice_server.figures import build_info
from pumice_server.models import Models, service_of
from pumice_server.properties import properties
from pumice_server.service import Service
from pumice_server.summaries import capabilities, listed, meta, summaries_of, summary_of
from pumice_server.work import aside, waiting

logger = logging.getLogger("pumice")

_BEAT_SECONDS = 10.0  # in which an engine ends a step


async def live(request: Request) -> Response:
    """200 as long as this process answers."""
    return json_response({"status": "ok"})


async def health(request: Request) -> Response:
    """200 where the engine answers, else 503; while the only model is loaded with how far that is."""
    models: Models = request.app.state.models
    entry = models.single
    if entry and entry.loading:
        done, total = entry.progress
        raise HTTPException(503, f"Loading model: {100 * done // max(1, total)} %")
    if entry and entry.service is None and not entry.sleeps:
        raise HTTPException(503, f"{entry.name} is {entry.state}")
    for other in models.entries:
        if other.service:
            await snapshot_of(other.service)
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """As health, and 503 where no further request is taken: the server is stopping, or the queue is full."""
    models: Models = request.app.state.models
    if models.draining:
        raise HTTPException(503, "the server is stopping")
    entry = models.single
    if entry and entry.service:
        queue = entry.service.model.config.max_queue
        if 0 <= queue <= (await snapshot_of(entry.service)).n_waiting:
            raise HTTPException(503, "the queue is full")
    return await health(request)


async def list_models(request: Request) -> Response:
    """OpenAI's list, with what llama-server adds, and as llama-server Ollama's beside it."""
    models: Models = request.app.state.models
    summaries = await summaries_of(models.entries)
    compat = models.settings.compat
    data = [
        _described(entry, name, summary, compat) for entry, summary in summaries for name in (entry.name, *entry.scales)
    ]
    listing = [
        {**listed(entry, summary), "type": "model", "capabilities": capabilities(summary)}
        for entry, summary in summaries
    ]
    return json_response({"models": listing, "object": "list", "data": data})


async def show_model(request: Request) -> Response:
    models: Models = request.app.state.models
    name = request.path_params["name"]
    entry = models.known(name)
    if entry is None:
        served = ", ".join(other for each in models.entries for other in each.names)
        raise HTTPException(404, f"there is no model {name!r:.100}; served: {served}")
    return json_response(_described(entry, name, await summary_of(entry), models.settings.compat))


def _described(entry: Entry, name: str, summary: pumice.Summary | None, compat: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": entry.created,
        "created_at": datetime.fromtimestamp(entry.created, UTC).isoformat(),
        "owned_by": "llamacpp" if compat else "pumice",
        "parent": entry.name if name not in entry.spec.names else None,
        "aliases": [other for other in entry.spec.names if compat or other != name],
        "tags": entry.spec.tags,
        "status": {"value": entry.state},
    }
    if summary:
        told["meta"] = {**meta(summary), **({"n_ctx": entry.service.model.n_ctx} if entry.service else {})}
    return told


async def props(request: Request) -> Response:
    """llama-server's properties of a model, or of a server with several; paths of this machine are not told."""
    models: Models = request.app.state.models
    name = request.query_params.get("model")
    page = {"conversations": "server" if models.settings.conversations else "browser"}
    if name is None and not models.single:
        told = {"role": "router", "max_instances": models.settings.max_models, "models_autoload": True}
        return json_response({**told, "ui_settings": page, "build_info": build_info(models.settings.compat)})
    entry = models.find(name)
    if entry.sleeps:  # it stays asleep
        return json_response({**(entry.properties or {}), "ui_settings": page, "is_sleeping": True})
    service = entry.service or await service_of(request, name)  # to ask is not to use: it may fall asleep
    told = await waiting(properties, entry, service, models.settings)
    return json_response({**told, "ui_settings": page, "is_sleeping": False})


async def change_props(request: Request) -> Response:
    """Nothing of a model can be changed while it is served, nor does llama-server have what could be."""
    raise HTTPException(501, "properties cannot be changed")


async def metrics(request: Request) -> Response:
    """Prometheus' text format, with ``names=llamacpp`` or ``--compat`` under llama-server's names."""
    models: Models = request.app.state.models
    for entry in models.entries:
        if service := entry.service:  # it may be unloaded while its engine is asked
            models.metrics.engine(entry.name, await snapshot_of(service), service.model.memory)
        else:
            models.metrics.no_engine(entry.name)
    names = request.query_params.get("names", "llamacpp" if models.settings.compat else "pumice")
    text = await aside(models.metrics.llamacpp if names == "llamacpp" else models.metrics.text)
    started = {"Process-Start-Time-Unix": str(models.started)}  # as llama-server tells it
    return titled(Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=started))


async def snapshot_of(service: Service) -> Any:
    try:
        return await service.snapshot(_BEAT_SECONDS)
    except TimeoutError:
        raise HTTPException(503, f"the engine has not ended a step for {_BEAT_SECONDS:.0f} seconds") from None


async def load_model(request: Request) -> Response:
    """Begin to load a model, as llama-server does; its state is told by the list of models."""
    models: Models = request.app.state.models
    models.begin(_named(models, await Body.read(request)))
    return json_response({"success": True})


async def unload_model(request: Request) -> Response:
    models: Models = request.app.state.models
    entry = _named(models, await Body.read(request))
    if entry.service is None:
        raise HTTPException(400, "model is not loaded")
    await models.unload(entry)
    return json_response({"success": True})


def _named(models: Models, body: Body) -> Entry:
    name = body.get("model", str, "")
    if not name:
        raise HTTPException(400, "model name is missing from the request")
    return models.find(name)
