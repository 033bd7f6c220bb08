"""Models that clients fetch, and delete again."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.exceptions import HTTPException

import pumice
from pumice.cli.fetched_models import loaded_files, remove_fetched, stored_files
from pumice_server.errors import bad_request
from pumice_server.models.pulls import Pull
from pumice_server.models.served_model import ServedModel
from pumice_server.models.served_models import Models
from pumice_server.models.variant import plain_name
from pumice_server.pools import FILES

_MAX_NAME = 500  # characters
_NOT_FETCHED = "{!r} has files that no client of this server has fetched; `pumice rm` removes downloaded files"


def read_name(name: str | None) -> str:
    """Return the name of a model to fetch. Raises HTTPException."""
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise bad_request(f"model must be the name of a model, of at most {_MAX_NAME} printable characters")
    return name


def begin_pull(models: Models, name: str) -> Pull:
    """Return the download of a model, which the caller leaves. Raises HTTPException."""
    if not models.settings.allow_pull:
        raise HTTPException(403, "clients may not fetch models: start the server with --allow-pull")
    models.check_number(name)
    return models.pulls.join(name)


async def delete_model(models: Models, name: str) -> None:
    """Delete a fetched or uploaded model, or a name that a client made. Raises HTTPException.

    Files that were on this machine before, or that a model of the command line has, are never deleted. Files that
    clients have fetched under several names are deleted with the last of them.
    """
    name = plain_name(name)
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
