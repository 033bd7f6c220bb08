"""Endpoints of llama-server's router: follow models, fetch one, and delete one that was fetched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice.cli.fetched_models import loaded_files, remove_fetched, stored_files
from pumice_server.answer_types import ModelEvent, Success
from pumice_server.answers import Streaming, json_response
from pumice_server.bodies import NamedModelBody
from pumice_server.errors import bad_request
from pumice_server.models import Models
from pumice_server.ollama_pull import begin_pull, read_name, serve_pulled
from pumice_server.pools import FILES
from pumice_server.pulls import Pull
from pumice_server.served_model import ServedModel

_NOT_FETCHED = "{!r} has files that no client of this server has fetched; `pumice rm` removes downloaded files"


async def follow(request: Request) -> Annotated[Response, None, ModelEvent]:
    """Report what happens to models, as server-sent events: loading, progress, downloads, new and removed models."""
    models: Models = request.app.state.models
    listener = models.events.listen()
    return Streaming(models.events.follow(listener), partial(models.events.forget, listener))


async def fetch(request: Request, body: NamedModelBody) -> Annotated[Response, Success]:
    """Begin to fetch a model, with `--allow-pull`, and serve it at the end. `/models/sse` reports the progress."""
    models: Models = request.app.state.models
    name = read_name(body.model)
    if models.known(name):
        raise bad_request(f"model {name!r:.100} already exists")
    if models.pulls.attended(name):
        raise bad_request(f"model {name!r:.100} is being fetched already")
    pull = begin_pull(models, name)
    models.pulls.attend(name, pull, _fetch(models, name, pull))
    return json_response({"success": True})


async def delete(request: Request) -> Annotated[Response, Success]:
    """Delete a model that a client has fetched, and its files.

    ``?model=``: Name of the model.
    """
    models: Models = request.app.state.models
    await delete_model(models, request.query_params.get("model", ""))
    return json_response({"success": True})


async def delete_model(models: Models, name: str) -> None:
    """Delete a fetched or uploaded model, or a name that a client made. Raises HTTPException.

    Files that were on this machine before, or that a model of the command line has, are never deleted. Files that
    clients have fetched under several names are deleted with the last of them.
    """
    name = name.removesuffix(":latest")
    served_model = models.known(name)
    if served_model is None:
        raise HTTPException(404, f"there is no model {name!r:.100}")
    if served_model.variants.pop(name, None) is not None:
        models.events.tell("model_remove", name)
        return
    if served_model.folder is not None and name == served_model.name:
        await models.remove(served_model)
        return
    if not served_model.fetched or name not in served_model.spec.names:
        raise HTTPException(403, _NOT_FETCHED.format(name[:100]))
    others = [other for other in models.served_models if other is not served_model]
    are_shared = await FILES(_are_shared, served_model, others)
    await models.remove(served_model)
    if are_shared:
        return
    try:
        await FILES(remove_fetched, served_model.name)
    except (pumice.HubError, OSError) as error:
        problem = f"{name!r:.100} is not served any more, but its files could not be removed: {error}"
        raise HTTPException(500, problem) from None


def _are_shared(served_model: ServedModel, others: Sequence[ServedModel]) -> bool:
    """Return True if a fetched model has the same files under another name, with which they stay.

    Raises HTTPException if some of the files were here before they were fetched, or a model of the command line needs
    them.
    """
    files = stored_files(served_model.name)
    if not files <= served_model.fetched:
        raise HTTPException(403, _NOT_FETCHED.format(served_model.name))
    sharing = [other for other in others if not files.isdisjoint(loaded_files(other.spec.path))]
    for other in sharing:
        if not other.fetched:
            raise HTTPException(409, f"{other.name!r:.100} has the same files, which are kept as long as it is served")
    return bool(sharing)


async def _fetch(models: Models, name: str, pull: Pull) -> None:
    """Follow a download to its end, and serve its model."""
    try:
        async for what, done, total in pull.follow():
            models.events.tell("download_progress", name, {what: {"done": done, "total": total}})
        serve_pulled(models, name, pull.result.result())
        models.events.tell("download_finished", name)
    except Exception as error:
        reason = error.detail if isinstance(error, HTTPException) else str(error)
        models.events.tell("download_failed", name, {"error": reason})
