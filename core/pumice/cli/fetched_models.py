"""Models that clients of a server have it download and delete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Download:
    """A download requested by a client of a server, in a thread of the caller.

    Raises:
        UnknownModelError: the name matches no model; paths of this machine are not accepted.
    """

    def __init__(self, model: str) -> None:
        from pumice.hub import ClientFetch

        self._model = model
        self._fetch = ClientFetch(model)
        self.loads_as = model  # after the download: a catalogue name with options, or the file's path
        self.files: frozenset[Path] = frozenset()  # all files of the model, links resolved
        self.new_files: frozenset[Path] = frozenset()  # those that were not on this machine before

    def run(self, progress: Callable[[str, int, int], None]) -> Path:
        """Download the model and return its file. Raises HubError.

        Args:
            progress: called with the file's name, the bytes downloaded, and the total bytes.
        """
        from pumice.hub.store import stored_models

        before = {file.resolve() for model in stored_models() for file in model.files}
        located = self._fetch.run(progress)
        self.files = stored_files(self._model)
        self.new_files = self.files - before
        self.loads_as = str(located.path) if located.options is None else self._model
        return located.path

    def abort(self) -> None:
        """End ``run``, which then raises HubError. Any thread may call this."""
        self._fetch.abort()


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
