"""What Ollama's clients ask before they generate: models, their details, the version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import json_response
from pumice_server.body import Body
from pumice_server.service import Service

_VERSION = "0.12.0"  # of the protocol that is spoken; clients compare it with what they need


async def version(request: Request) -> Response:
    return json_response({"version": _VERSION})


async def tags(request: Request) -> Response:
    return json_response({"models": [_entry(request.app.state.service)]})


async def running(request: Request) -> Response:
    service: Service = request.app.state.service
    held = {"context_length": service.model.n_ctx, "size_vram": 0, "expires_at": "0001-01-01T00:00:00Z"}
    return json_response({"models": [_entry(service) | held]})


async def show(request: Request) -> Response:
    service: Service = request.app.state.service
    await Body.read(request)
    metadata = service.model.metadata
    facts = {name: value for name, value in metadata.items() if isinstance(value, (str, int, float, bool))}
    template = facts.pop("tokenizer.chat_template", "")
    capabilities = ["completion", "tools"] if "tools" in str(template) else ["completion"]
    return json_response(
        {
            "modelfile": "",
            "parameters": "",
            "template": template,
            "details": _details(service),
            "model_info": facts,
            "capabilities": capabilities,
            "modified_at": _time(service),
        }
    )


def _entry(service: Service) -> dict[str, Any]:
    return {
        "name": service.name,
        "model": service.name,
        "modified_at": _time(service),
        "size": service.model.memory.get("weights", 0),
        "digest": "",
        "details": _details(service),
    }


def _details(service: Service) -> dict[str, Any]:
    family = service.model.metadata["general.architecture"]
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": service.model.metadata.get("general.size_label", ""),
        "quantization_level": "",
    }


def _time(service: Service) -> str:
    return datetime.fromtimestamp(service.created, UTC).isoformat().replace("+00:00", "Z")
