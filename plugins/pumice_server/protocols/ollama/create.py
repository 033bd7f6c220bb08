"""Endpoints for Ollama's ``create``, ``copy`` and ``delete``: names kept in memory, and models of uploaded files."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice.hub import parse_modelfile
from pumice_server.catalogue import ServedModel, Variant, delete_model, model_name, plain_name
from pumice_server.interface import Models, Streaming, bad_request, has_media, no_model
from pumice_server.protocols.ollama.answer_types import OllamaStatus
from pumice_server.protocols.ollama.blobs import serve_uploaded
from pumice_server.protocols.ollama.bodies import OllamaCopyBody, OllamaCreateBody, OllamaNameBody, OllamaOptions
from pumice_server.protocols.ollama.chat import read_message
from pumice_server.protocols.ollama.pull import progress

_MAX_NAMES = 1000  # that clients made, of all models
_MAX_BYTES = 1 << 20  # of a body, and of what a name keeps, as JSON
_MAX_KEPT = 16 << 20  # bytes that all names keep together


async def create(request: Request, body: OllamaCreateBody) -> OllamaStatus | Streaming[OllamaStatus]:
    """Make a name for a served model, with a system message, messages and parameters of its own.

    With `files`, or `adapters` for the served model, serve a model of uploaded files.
    """
    models: Models = request.app.state.models
    if body.size > _MAX_BYTES:
        raise bad_request(f"the body has {body.size} bytes; one that makes a name has at most {_MAX_BYTES}")
    body = await body.aside(_read_modelfile, body) if body.modelfile else body
    base = body.base
    if not base and not body.files:
        raise bad_request("from must name a served model, or files those of a model that were uploaded")
    if base and body.files:
        raise bad_request("from and files are two models; give one")
    served_model, inherited = _find(models, base) if base else (None, Variant())
    if any(message.get("images") for message in body.messages) or has_media(body.messages):
        raise bad_request("messages: images and sounds belong to chats, not to a name")
    if body.parameters:
        body.parameters.refuse_unsupported()
    system, parameters = body.system or inherited.system, body.parameters or inherited.parameters
    messages = list(map(read_message, body.messages)) or inherited.messages
    n_bytes = len(msgspec.json.encode([system, messages, parameters]))
    if n_bytes > _MAX_BYTES:
        raise bad_request(f"system, messages and parameters have {n_bytes} bytes; the maximum is {_MAX_BYTES}")
    variant = Variant(system, messages, parameters, n_bytes)
    if served_model is None or body.adapters:
        await serve_uploaded(models, body, served_model, variant)
    else:
        _add(models, served_model, body.named, variant)
    return progress(body.stream, [OllamaStatus(status="reading model metadata"), OllamaStatus(status="success")])


async def copy(request: Request, body: OllamaCopyBody) -> Response:
    """Give a served model another name."""
    models: Models = request.app.state.models
    served_model, variant = _find(models, body.source)
    _add(models, served_model, body.destination, variant)
    return Response()


async def delete(request: Request, body: OllamaNameBody) -> OllamaStatus:
    """Remove a name that a client made, or a model that one fetched or uploaded; others stay."""
    await delete_model(request.app.state.models, body.named or "")
    return OllamaStatus(status="success")


def _read_modelfile(body: OllamaCreateBody) -> OllamaCreateBody:
    """Return the body with the fields that its Modelfile stands for. Raises HTTPException."""
    try:
        parsed = parse_modelfile(body.modelfile, "modelfile")
        if parsed.template or parsed.adapters:
            raise bad_request("modelfile: TEMPLATE and ADAPTER come with `pumice create` and `pumice serve`")
        options = {name: value for name, value in parsed.parameters.items() if name in OllamaOptions.__struct_fields__}
        parameters = msgspec.convert(options, OllamaOptions) if options else None
    except (pumice.ConfigError, msgspec.ValidationError) as error:
        raise bad_request(str(error)) from None
    return msgspec.structs.replace(
        body, base=parsed.base, system=parsed.system, messages=parsed.messages, parameters=parameters
    )


def _find(models: Models, name: str) -> tuple[ServedModel, Variant]:
    """Return a served model by its exact name, and the defaults of the name. Raises HTTPException."""
    served_model = models.known(name)
    if served_model is None:
        raise no_model(name, models.names)
    return served_model, served_model.variants.get(plain_name(name)) or served_model.defaults or Variant()


def _add(models: Models, served_model: ServedModel, name: str | None, variant: Variant) -> None:
    """Serve a name, in place of an earlier one of a client. Raises HTTPException."""
    name = model_name(name)
    owner = models.known(name)
    if owner and name not in owner.variants:
        raise HTTPException(409, f"{name!r:.100} is a name of the server's own")
    others = [
        other for served_model in models.served_models for key, other in served_model.variants.items() if key != name
    ]
    if len(others) >= _MAX_NAMES:
        raise HTTPException(503, f"clients have made {_MAX_NAMES} names already; delete others")
    if sum(other.n_bytes for other in others) + variant.n_bytes > _MAX_KEPT:
        raise HTTPException(
            503, f"the names that clients have made would keep more than {_MAX_KEPT} bytes; delete others"
        )
    if owner:
        del owner.variants[name]
    served_model.variants[name] = variant
