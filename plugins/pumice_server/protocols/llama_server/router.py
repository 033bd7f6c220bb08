"""Endpoints of llama-server's router: follow models, fetch one, and delete one that was fetched."""

from __future__ import annotations

from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answer_types import Success
from pumice_server.catalogue import Pull, ServedModel, begin_pull, delete_model, read_name
from pumice_server.interface import Models, Streaming, bad_request, no_model, problem_of
from pumice_server.protocols.llama_server.answer_types import ModelEvent
from pumice_server.protocols.llama_server.bodies import NamedModelBody


async def follow(request: Request) -> Streaming[ModelEvent]:
    """Report what happens to models, as server-sent events: loading, progress, downloads, new and removed models."""
    models: Models = request.app.state.models
    listener = models.events.listen()
    return Streaming(models.events.follow(listener), partial(models.events.forget, listener))


async def fetch(request: Request, body: NamedModelBody) -> Success:
    """Begin to fetch a model, with `--allow-pull`, and serve it at the end. `/models/sse` reports the progress."""
    models: Models = request.app.state.models
    name = read_name(body.model)
    if models.known(name):
        raise bad_request(f"model {name!r:.100} already exists")
    if models.pulls.attended(name):
        raise bad_request(f"model {name!r:.100} is being fetched already")
    pull = begin_pull(models, name)
    models.pulls.attend(name, pull, _fetch(models, name, pull))
    return Success(success=True)


async def delete(request: Request) -> Success:
    """Delete a model that a client has fetched, and its files.

    ``?model=``: Name of the model.
    """
    models: Models = request.app.state.models
    await delete_model(models, request.query_params.get("model", ""))
    return Success(success=True)


async def _fetch(models: Models, name: str, pull: Pull) -> None:
    """Follow a download to its end, and serve its model."""
    try:
        async for what, done, total in pull.follow():
            models.events.tell("download_progress", name, {what: {"done": done, "total": total}})
        await models.add(name, pull.result.result())
        models.events.tell("download_finished", name)
    except Exception as error:
        models.events.tell("download_failed", name, {"error": problem_of(error).message})


async def load_model(request: Request, body: NamedModelBody) -> Success:
    """Begin to load a model; the list of models has its state."""
    models: Models = request.app.state.models
    models.load(_named(models, body.model))
    return Success(success=True)


async def unload_model(request: Request, body: NamedModelBody) -> Success:
    """Unload a model that is not in use, or cancel a download that `POST /models` began."""
    models: Models = request.app.state.models
    if models.pulls.cancel(body.model):
        models.events.tell("download_failed", body.model, {"error": "cancelled"})
        return Success(success=True)
    served_model = _named(models, body.model)
    if served_model.service is None:
        raise HTTPException(400, "model is not loaded")
    await models.unload(served_model)
    return Success(success=True)


async def no_proxy(request: Request) -> Response:
    """Refuse to fetch pages of other servers."""
    raise HTTPException(501, "the server fetches nothing for pages")


def _named(models: Models, name: str) -> ServedModel:
    if not name:
        raise HTTPException(400, "model name is missing from the request")
    served_model = models.known(name)  # a single model answers to any name, but is only unloaded by its own
    if served_model is None:
        raise no_model(name, models.names)
    return served_model
