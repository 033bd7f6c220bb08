"""What clients ask before they generate: whether the server is there, and which models it serves."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from pumice_server.answers import json_response
from pumice_server.service import Service


async def health(request: Request) -> Response:
    """200 where the model can compute, else 503, as llama-server has it."""
    service: Service = request.app.state.service
    if service.model.closed:
        raise HTTPException(503, "the model is closed")
    return json_response({"status": "ok"})


async def index(request: Request) -> Response:
    """What is served here, for people."""
    service: Service = request.app.state.service
    base = str(request.base_url).rstrip("/")
    return PlainTextResponse(
        f"Pumice serves {', '.join(service.names)}.\n\nOpenAI's clients: base_url={base}/v1\nModels: {base}/v1/models\n"
    )


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
