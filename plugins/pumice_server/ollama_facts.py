"""Endpoints for Ollama's list of models, their details, and the version."""

from __future__ import annotations

import time
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answer_types import OllamaModel, OllamaModels, OllamaVersion
from pumice_server.answers import json_response
from pumice_server.bodies import OllamaNameBody
from pumice_server.models import Models, service_of
from pumice_server.served_model import FOREVER, ServedModel
from pumice_server.summaries import capabilities, details, listed, summaries_of, summary_of, time_text

_VERSION = "0.12.0"  # of Ollama's protocol; clients check for a minimum
_NEVER = "0001-01-01T00:00:00Z"


async def version(request: Request) -> Annotated[Response, OllamaVersion]:
    """Return the version of Ollama's protocol."""
    return json_response({"version": _VERSION})


async def tags(request: Request) -> Annotated[Response, OllamaModels]:
    """List the served models, in Ollama's form."""
    models: Models = request.app.state.models
    return json_response(
        {
            "models": [
                listed(entry, summary, name)
                for entry, summary in await summaries_of(models.entries)
                for name in (entry.name, *entry.variants)
            ]
        }
    )


async def running(request: Request) -> Annotated[Response, OllamaModels]:
    """List the loaded models, in Ollama's form."""
    models: Models = request.app.state.models
    summaries = await summaries_of([entry for entry in models.entries if entry.service])
    loaded = [
        (entry, summary) for entry, summary in summaries if entry.service
    ]  # those that were not unloaded meanwhile
    return json_response({"models": [listed(entry, summary) | _held(entry) for entry, summary in loaded]})


async def show(request: Request, body: OllamaNameBody) -> Annotated[Response, OllamaModel]:
    """Describe a model, in Ollama's form. The model is not loaded, but fetched if it is not on this machine."""
    models: Models = request.app.state.models
    entry = models.find(body.named)
    summary = await summary_of(entry)
    if summary is None:
        summary = (await service_of(request, body.named)).model.summary
    facts = {**summary.metadata, "general.parameter_count": summary.n_parameters}
    template = facts.pop("tokenizer.chat_template", "")
    return json_response(
        {
            "modelfile": "",
            "parameters": "",
            "template": template,
            "details": details(summary),
            "model_info": facts,
            "capabilities": capabilities(summary, entry.service),
            "modified_at": time_text(summary.modified or entry.created),
        }
    )


def _held(entry: ServedModel) -> dict[str, Any]:
    assert entry.service is not None
    left = entry.expires - time.monotonic()
    expires = _NEVER if left == FOREVER else time_text(time.time() + left)
    return {"size": entry.size, "context_length": entry.service.model.n_ctx, "size_vram": 0, "expires_at": expires}
