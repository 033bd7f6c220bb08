"""Endpoints for Ollama's list of models, their details, and the version."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec
from starlette.requests import Request

import pumice
from pumice_server.answer_types import ListedModel
from pumice_server.catalogue import (
    FOREVER,
    ServedModel,
    Variant,
    capabilities,
    details,
    listed,
    plain_name,
    summaries_of,
    summary_of,
    time_text,
)
from pumice_server.interface import Models, service_of
from pumice_server.protocols.ollama.answer_types import OllamaModel, OllamaModels, OllamaVersion
from pumice_server.protocols.ollama.bodies import OllamaNameBody

_VERSION = "0.12.0"  # of Ollama's protocol; clients check for a minimum
_NAMES = {"max_tokens": "num_predict"}  # of parameters of the catalogue
_NEVER = "2300-01-01T00:00:00Z"  # `ollama ps` takes a time that has passed for a model that is stopping


async def version(request: Request) -> OllamaVersion:
    """Return the version of Ollama's protocol."""
    return OllamaVersion(version=_VERSION)


async def tags(request: Request) -> OllamaModels:
    """List the served models, in Ollama's format."""
    models: Models = request.app.state.models
    return OllamaModels(
        models=[
            listed(served_model, summary, name)
            for served_model, summary in await summaries_of(models.served_models)
            for name in (served_model.name, *served_model.variants)
        ]
    )


async def running(request: Request) -> OllamaModels:
    """List the loaded models, in Ollama's format."""
    models: Models = request.app.state.models
    summaries = await summaries_of([served_model for served_model in models.served_models if served_model.service])
    loaded = [each for each in summaries if each[0].service]  # those that were not unloaded meanwhile
    return OllamaModels(models=[_held(*each) for each in loaded])


async def show(request: Request, body: OllamaNameBody) -> OllamaModel:
    """Describe a model, in Ollama's format. The model is not loaded, but fetched if it is not on this machine."""
    models: Models = request.app.state.models
    served_model = models.find(body.named)
    summary = await summary_of(served_model)
    if summary is None:
        summary = (await service_of(request, body.named)).model.summary
    facts = {**summary.metadata, "general.parameter_count": summary.n_parameters}
    template = facts.pop("tokenizer.chat_template", "")
    variant = served_model.variants.get(plain_name(body.named or "")) or served_model.defaults or Variant()
    return OllamaModel(
        modelfile=modelfile(variant, served_model.names[0]),
        parameters=parameter_lines(variant),
        system=variant.system or None,
        messages=[dict(message) for message in variant.messages] or None,
        template=template,
        details=details(summary),
        model_info=facts,
        capabilities=capabilities(summary, served_model.service, served_model.media),
        modified_at=time_text(summary.modified or served_model.created),
    )


def _held(served_model: ServedModel, summary: pumice.Summary | None) -> ListedModel:
    """Describe a loaded model."""
    assert served_model.service is not None
    left = served_model.expires - time.monotonic()
    model = listed(served_model, summary)
    facts = served_model.service.model.facts
    on_gpus = sum(device.bytes for device in facts.devices if device.is_gpu)
    model.size, model.size_vram, model.context_length = max(served_model.size, on_gpus), on_gpus, facts.n_ctx
    model.expires_at = _NEVER if left == FOREVER else time_text(time.time() + left)  # noqa: TID251 (shown)
    return model


def parameter_lines(variant: Variant) -> str:
    """Return the parameters as Ollama shows them: a line with a name and a value for each."""
    return "\n".join(f"{name:<30} {value}" for name, value in _parameters(variant))


def modelfile(variant: Variant, base: str) -> str:
    """Return the Modelfile that makes a variant of the model ``base``, or an empty text without defaults."""
    lines = [f"PARAMETER {name} {value}" for name, value in _parameters(variant)]
    lines += [f"SYSTEM {_quoted(variant.system)}"] if variant.system else []
    lines += [f"MESSAGE {message['role']} {_quoted(str(message.get('content')))}" for message in variant.messages]
    return "\n".join([f"FROM {base}", *lines, ""]) if lines else ""


def _parameters(variant: Variant) -> Iterator[tuple[str, str]]:
    """Yield the parameters that differ from a request's defaults; a list as several of one name."""
    if variant.parameters is None:
        return
    defaults = msgspec.to_builtins(type(variant.parameters)())
    for name, value in msgspec.to_builtins(variant.parameters).items():
        if value != defaults[name]:
            for single in value if isinstance(value, list) else [value]:
                yield _NAMES.get(name, name), json.dumps(single, ensure_ascii=False)


def _quoted(text: str) -> str:
    return f'"""{text}"""' if "\n" in text or '"' in text else f'"{text}"'
