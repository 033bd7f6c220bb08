"""What clients ask before they generate: whether the server is there, and which models it serves."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice_server.answers import json_response
from pumice_server.service import Service


async def health(request: Request) -> Response:
    """200 where the engine answers, else 503."""
    service: Service = request.app.state.service
    await _snapshot(service)
    return json_response({"status": "ok"})


async def models(request: Request) -> Response:
    service: Service = request.app.state.service
    return json_response({"object": "list", "data": [_described(service, service.name)]})


async def model(request: Request) -> Response:
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if name not in service.names:
        raise HTTPException(404, f"there is no model {name!r:.100}; served: {', '.join(service.names)}")
    return json_response(_described(service, name))


def _described(service: Service, name: str) -> dict[str, Any]:
    model = service.model
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "pumice",
        "aliases": [other for other in service.names if other != name],
        "meta": {
            "architecture": model.metadata["general.architecture"],
            "n_vocab": model.n_vocab,
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.architecture.n_ctx_train,
            "size": model.memory.get("weights", 0),
        },
    }


async def props(request: Request) -> Response:
    """llama-server's properties; paths of this machine are not told."""
    service: Service = request.app.state.service
    model = service.model
    bos, eos = model.tokenizer.bos, model.tokenizer.eos
    told = {
        "default_generation_settings": {"params": dict(model.config.sampling), "n_ctx": model.n_ctx},
        "total_slots": model.config.n_parallel,
        "model_alias": service.name,
        "model_path": service.name,
        "modalities": {"vision": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "chat_template": model.config.chat_template or model.metadata.get("tokenizer.chat_template", ""),
        "bos_token": "" if bos is None else model.tokenizer.token_text(bos),
        "eos_token": "" if eos is None else model.tokenizer.token_text(eos),
        "build_info": f"pumice-{pumice.__version__}",
        "is_sleeping": False,
    }
    return json_response(told)


async def slots(request: Request) -> Response:
    """llama-server's slots: as many as sequences are computed at once; they show no text."""
    service: Service = request.app.state.service
    snapshot = await _snapshot(service)
    busy = snapshot.n_slots - snapshot.n_slots_free
    if busy == snapshot.n_slots and request.query_params.get("fail_on_no_slot"):
        raise HTTPException(503, "no slot is free")
    told = [{"id": i, "n_ctx": service.model.n_ctx, "is_processing": i < busy} for i in range(snapshot.n_slots)]
    return json_response(told)


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    service: Service = request.app.state.service
    text = service.metrics.text(await _snapshot(service), service.model.memory)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _snapshot(service: Service) -> Any:
    try:
        return await service.snapshot()
    except TimeoutError:
        raise HTTPException(503, "the engine has not ended a step for 10 seconds") from None
