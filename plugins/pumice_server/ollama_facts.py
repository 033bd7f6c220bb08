"""What Ollama's clients ask before they generate: models, their details, the version."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answers import json_response
from pumice_server.body import Body
from pumice_server.entry import FOREVER, Entry
from pumice_server.models import Models, service_of
from pumice_server.summaries import capabilities, details, listed, summaries_of, summary_of, time_text

_VERSION = "0.12.0"  # of the protocol that is spoken; clients compare it with what they need
_NEVER = "0001-01-01T00:00:00Z"


async def version(request: Request) -> Response:
    return json_response({"version": _VERSION})


async def tags(request: Request) -> Response:
    models: Models = request.app.state.models
    return json_response({"models": [listed(*each) for each in await summaries_of(models.entries)]})


async def running(request: Request) -> Response:
    models: Models = request.app.state.models
    summaries = await summaries_of([entry for entry in models.entries if entry.service])
    loaded = [(entry, summary) for entry, summary in summaries if entry.service]  # still
    return json_response({"models": [listed(entry, summary) | _held(entry) for entry, summary in loaded]})


async def show(request: Request) -> Response:
    """Details of a model, which is not loaded for that; but it is fetched, if it is not here yet."""
    body = await Body.read(request)
    models: Models = request.app.state.models
    name = body.first("model", "name")
    entry = models.find(name if isinstance(name, str) else None)
    summary = await summary_of(entry)
    if summary is None:
        summary = (await service_of(request, name)).model.summary
    facts = {**summary.metadata, "general.parameter_count": summary.n_parameters}
    template = facts.pop("tokenizer.chat_template", "")
    return json_response(
        {
            "modelfile": "",
            "parameters": "",
            "template": template,
            "details": details(summary),
            "model_info": facts,
            "capabilities": capabilities(summary),
            "modified_at": time_text(summary.modified or entry.created),
        }
    )


def _held(entry: Entry) -> dict[str, Any]:
    assert entry.service is not None
    left = entry.expires - time.monotonic()
    expires = _NEVER if left == FOREVER else time_text(time.time() + left)
    return {"size": entry.size, "context_length": entry.service.model.n_ctx, "size_vram": 0, "expires_at": expires}
