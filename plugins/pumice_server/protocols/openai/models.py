"""OpenAI's list of models, with the fields of Anthropic's, llama-server's and Ollama's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace
from starlette.requests import Request

import pumice
from pumice_server.catalogue import ServedModel, capabilities, listed, meta, summaries_of, summary_of
from pumice_server.interface import Models, no_model
from pumice_server.protocols.openai.answer_types import ModelInfo, ModelList


async def list_models(request: Request) -> ModelList:
    """List the served models, in OpenAI's format, with Ollama's beside it as in llama-server."""
    models: Models = request.app.state.models
    summaries = await summaries_of(models.served_models)
    compat = models.settings.compat
    data = [
        _described(served_model, name, summary, compat)
        for served_model, summary in summaries
        for name in (served_model.name, *served_model.variants, *_adapters(models, served_model))
    ]
    listing = [
        replace(listed(served_model, summary), type="model", capabilities=_abilities(served_model, summary))
        for served_model, summary in summaries
    ]
    return ModelList(models=listing, object="list", data=data)


def _adapters(models: Models, served_model: ServedModel) -> Iterator[str]:
    """Yield the names of a model's adapters, with the model's where another model has the name."""
    for name in served_model.scales:
        yield name if models.known(name) is served_model else f"{served_model.name}:{name}"


def _abilities(served_model: ServedModel, summary: pumice.Summary | None) -> list[str]:
    """Return the capabilities of a model by the names of Ollama and llama-server."""
    service = served_model.service
    abilities = capabilities(summary, service, served_model.media)
    media = service.model.facts.media if service else served_model.media
    return [*abilities, *(["video"] if "video" in media else []), *(["multimodal"] if "vision" in abilities else [])]


async def show_model(request: Request) -> ModelInfo:
    """Describe a served model."""
    models: Models = request.app.state.models
    name = request.path_params["name"]
    served_model = models.known(name)
    if served_model is None:
        raise no_model(name, [other for served_entry in models.served_models for other in served_entry.names])
    return _described(served_model, name, await summary_of(served_model), models.settings.compat)


def _described(served_model: ServedModel, name: str, summary: pumice.Summary | None, compat: bool) -> ModelInfo:
    context = {"n_ctx": served_model.service.model.n_ctx} if served_model.service else {}
    return ModelInfo(
        id=name,
        object="model",
        type="model",
        display_name=name,
        created=served_model.created,
        created_at=datetime.fromtimestamp(served_model.created, UTC).isoformat(),
        owned_by="llamacpp" if compat else "pumice",
        parent=served_model.name if name not in served_model.spec.names else None,
        aliases=[other for other in served_model.spec.names if compat or other != name],
        tags=list(served_model.spec.tags),
        status={"value": served_model.status},
        meta={**meta(summary), **context} if summary else None,
    )
