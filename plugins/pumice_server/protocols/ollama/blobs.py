"""Endpoints for Ollama's ``blobs``: files that clients upload, with ``--allow-uploads``, and models of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice.plugin.unstable import ModelSpec
from pumice_server.catalogue import (
    ServedModel,
    Uploads,
    Variant,
    configured_loras,
    model_name,
    model_of,
    summarize_model,
    vocabulary_problem,
)
from pumice_server.interface import FILES, Models, bad_request
from pumice_server.protocols.ollama.bodies import OllamaCreateBody


async def find_blob(request: Request) -> Response:
    """Answer whether a file has been uploaded, with the status 200 or 404. Ollama's client asks before it sends one."""
    uploads: Uploads | None = request.app.state.models.uploads
    if uploads is None or await FILES(uploads.find, request.path_params["digest"]) is None:
        raise HTTPException(404, "there is no such file")
    return Response()


async def upload(request: Request) -> Response:
    """Keep a file, the body, with ``--allow-uploads``; its digest must be that of the path, ``sha256:HEX``."""
    uploads = _uploads(request.app.state.models)
    digest = request.path_params["digest"]
    if await FILES(uploads.find, digest):
        return Response()
    await uploads.receive(digest, request.stream(), int(request.headers.get("content-length", 0)))
    return Response(status_code=201)


async def refuse_push(request: Request) -> Response:
    """Refuse to publish a model."""
    raise HTTPException(501, "models are not published from here: `pumice serve` has no registry")


async def serve_uploaded(models: Models, body: OllamaCreateBody, base: ServedModel | None, defaults: Variant) -> None:
    """Serve a model made of uploaded files, in place of an earlier one of its name.

    Args:
        models: The served models.
        body: Body of Ollama's ``create``.
        base: Model that gets adapters; None if the files have the model.
        defaults: Defaults of its chats.

    Raises:
        HTTPException: A file is missing, or no model; or the name is taken.
    """
    uploads = _uploads(models)
    name = model_name(body.named)
    files = body.files or (base.uploaded if base else {})
    if both := files.keys() & body.adapters.keys():
        raise bad_request(f"{min(both)!r:.100} is a file of the model and an adapter; rename one")
    main = model_of(files) if files else ""
    folder = await FILES(uploads.link, {**files, **body.adapters})
    try:
        path = str(folder / main) if main or base is None else base.spec.path
        summary = await FILES(summarize_model, path)
        if summary is None:
            raise bad_request(f"{main or body.base}: not a GGUF model that can be read")
        if summary.kind != "model":
            raise bad_request(f"{main or body.base}: not a model, but of the type {summary.kind!r:.60}")
        if main and (problem := await FILES(vocabulary_problem, path)):
            raise bad_request(f"{main}: its vocabulary is damaged: {problem}")
        adapters = {Path(adapter).stem: str(folder / adapter) for adapter in body.adapters}
        for adapter in body.adapters:
            about = await FILES(summarize_model, str(folder / adapter))
            if about is None or not about.is_adapter:
                raise bad_request(f"{adapter}: neither a LoRA adapter nor a control vector")
        spec = ModelSpec([name], path, _with_adapters(models, base, adapters), summary.n_bytes)
        served_model = ServedModel(spec, models.settings.keep_alive)
        served_model.scales = await FILES(configured_loras, spec.path, spec.options)
        served_model.uploaded, served_model.folder, served_model.defaults = files, folder, defaults
        await models.replace(served_model)
    except BaseException:
        await FILES(uploads.discard, folder)
        raise


def _with_adapters(models: Models, base: ServedModel | None, adapters: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``pumice.load`` for a model with uploaded adapters besides those of its base."""
    options = dict(base.spec.options if base else models.other_options)
    if adapters:
        config = options.get("config", {})
        options["config"] = {**config, "adapters": {**config.get("adapters", {}), **adapters}}
    return options


def _uploads(models: Models) -> Uploads:
    if models.uploads is None:
        raise HTTPException(403, "clients may not upload files: start the server with --allow-uploads")
    return models.uploads
