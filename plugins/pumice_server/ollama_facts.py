"""What Ollama's clients ask before they generate: models, their details, the version."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import json_response
from pumice_server.body import Body
from pumice_server.entry import FOREVER, Entry
from pumice_server.models import Models, service_of

_VERSION = "0.12.0"  # of the protocol that is spoken; clients compare it with what they need
_NEVER = "0001-01-01T00:00:00Z"


async def version(request: Request) -> Response:
    return json_response({"version": _VERSION})


async def tags(request: Request) -> Response:
    models: Models = request.app.state.models
    return json_response({"models": [_entry(entry) for entry in models.entries]})


async def running(request: Request) -> Response:
    models: Models = request.app.state.models
    return json_response({"models": [_entry(entry) | _held(entry) for entry in models.entries if entry.service]})


async def show(request: Request) -> Response:
    body = await Body.read(request)
    models: Models = request.app.state.models
    name = body.first("model", "name")
    service = await service_of(request, name)
    entry = models.find(name if isinstance(name, str) else None)
    metadata = service.model.metadata
    facts = {key: value for key, value in metadata.items() if isinstance(value, (str, int, float, bool))}
    template = facts.pop("tokenizer.chat_template", "")
    capabilities = ["completion", "tools"] if "tools" in str(template) else ["completion"]
    return json_response(
        {
            "modelfile": "",
            "parameters": "",
            "template": template,
            "details": _details(entry),
            "model_info": facts,
            "capabilities": capabilities,
            "modified_at": _time(entry.created),
        }
    )


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "model": entry.name,
        "modified_at": _time(entry.created),
        "size": entry.size,
        "digest": "",
        "details": _details(entry),
    }


def _held(entry: Entry) -> dict[str, Any]:
    assert entry.service is not None
    left = entry.expires - time.monotonic()
    expires = _NEVER if left == FOREVER else _time(time.time() + left)
    return {"context_length": entry.service.model.n_ctx, "size_vram": 0, "expires_at": expires}


def _details(entry: Entry) -> dict[str, Any]:
    metadata = entry.service.model.metadata if entry.service else {}
    family = metadata.get("general.architecture", "")
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": metadata.get("general.size_label", ""),
        "quantization_level": "",
    }


def _time(seconds: float) -> str:
    """``seconds`` since 1970, as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
