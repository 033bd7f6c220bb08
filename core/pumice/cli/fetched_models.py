"""Models that clients of a server have it download and delete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pumice.hub import ClientFetch


class Fetched(NamedTuple):
    """A model that was fetched."""

    loads_as: str  # a name of the catalogue that has options, or the file's path
    size: int  # bytes of the file, or of its first part
    files: frozenset[Path]  # all files, links resolved
    new_files: frozenset[Path]  # those that were not on this machine before


def run_fetch(fetching: ClientFetch, progress: Callable[[str, int, int], None]) -> Fetched:
    """Fetch a model, as ``ClientFetch.run``."""
    from pumice.hub.store import stored_models

    before = {file.resolve() for model in stored_models() for file in model.files}
    path, options = fetching.run(progress)
    files = stored_files(fetching.model)
    loads_as = str(path) if options is None else fetching.model
    return Fetched(loads_as, path.stat().st_size, files, files - before)


def stored_files(model: str) -> frozenset[Path]:
    """Return the files that ``remove_fetched`` deletes, links resolved; none if the model is not downloaded."""
    from pumice.cli.rm import find
    from pumice.errors import PumiceError

    try:
        return frozenset(file.resolve() for file in find(model).files)
    except PumiceError:
        return frozenset()


def loaded_files(model: str) -> frozenset[Path]:
    """Return the files that a path or name stands for, links resolved; none if the model is not on this machine."""
    from pumice.errors import PumiceError
    from pumice.hub.locate import cached, resolve_name

    try:
        return frozenset(file.resolve() for file in cached(resolve_name(model)[0]))
    except PumiceError:
        return frozenset()


def remove_fetched(model: str) -> None:
    """Delete the files of a fetched model. Raises HubError and OSError."""
    from pumice.cli.rm import find
    from pumice.hub.store import remove

    remove(find(model))
