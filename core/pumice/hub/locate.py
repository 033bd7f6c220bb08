"""Resolve the name of a model to its file and options."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pumice.config import Config, Layer, load_config
from pumice.errors import HubError, UnknownModelError
from pumice.file_names import why_absent
from pumice.hub.abort import Abort, AbortedError
from pumice.hub.catalogue import catalogue, look_up
from pumice.hub.download import DownloadProgress
from pumice.hub.names import CatalogueName, HubName, WebName, parse_name
from pumice.wording import did_you_mean, documentation_page

_logger = logging.getLogger("pumice")


class Located(NamedTuple):
    """A model on this machine."""

    path: Path  # of the file, or of its first part
    options: Layer | None  # options of the catalogue's entry


def locate(model: str | Path, config: Config | None = None, progress: DownloadProgress | None = None) -> Located:
    """Return the file of a model, fetching it if it is not on this machine.

    Args:
        model: path or name of the model.
        config: configuration with the catalogue; None reads it when a name needs it.
        progress: called with the file's name, bytes done and total bytes.

    Raises:
        HubError: the model does not exist or cannot be fetched.
    """
    name, options = resolve_name(model, config)
    paths = cached(name) or _fetch(name, progress)
    return Located(paths[0], options)


def fetch(model: str, config: Config | None = None, progress: DownloadProgress | None = None) -> list[Path]:
    """Update a model from its source, fetching new files. Return all of its files."""
    name, _ = resolve_name(model, config)
    if isinstance(name, Path) and not name.is_file():
        raise HubError(f"{model}: {why_absent(name) or 'not a file'}, and not a name of a model that can be fetched")
    return _fetch(name, progress)


class ClientFetch:
    """A download on behalf of a server's client, whose ``model`` is never a path.

    Hosts must be public or configured by the operator: the Hub's endpoint, and addresses in the catalogue.

    Raises UnknownModelError if the name is not one of a model.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self._abort = Abort()
        self._name, self._options = resolve_name(model, load_config(), paths=False)
        if isinstance(self._name, WebName) and self._options is None:
            address = urlsplit(self._name.url)
            if address.scheme != "https" or "@" in address.netloc:
                raise UnknownModelError(
                    f"{model}: clients may only use addresses that begin with https:// and have no user"
                )

    def run(self, progress: DownloadProgress) -> Located:
        """Fetch the model. Errors do not reveal responses of other hosts, which are only logged.

        Raises:
            UnknownModelError: the Hub has no such model.
            HubError: the model cannot be fetched.
        """
        try:
            paths = _fetch_from(self._name, progress, self._trusted(), self._abort, public_only=True)
            return Located(paths[0], self._options)
        except UnknownModelError:
            raise
        except AbortedError as error:
            _logger.info("%s: %s", self.model, error)
            raise
        except HubError as error:
            _logger.error("%s", error)
            raise HubError(f"{self.model}: the model cannot be fetched; see the server's log") from None

    def abort(self) -> None:
        """Abort ``run``. Thread-safe."""
        self._abort.abort()

    def _trusted(self) -> list[str]:
        """Return the addresses that the operator configured besides the Hub's endpoint."""
        return [self._name.url] if isinstance(self._name, WebName) and self._options is not None else []


def resolve_name(
    model: str | Path, config: Config | None = None, *, paths: bool = True
) -> tuple[Path | HubName | WebName, Layer | None]:
    """Resolve a name to a model and the options of its entry. Without ``paths`` names are not read as paths."""
    name = parse_name(model, lambda text: text in catalogue(config or load_config()), paths=paths)
    options = None
    if isinstance(name, CatalogueName):
        entry = look_up(name.name, config or load_config())
        name, options = parse_name(entry.model), entry.options
        assert not isinstance(name, CatalogueName)
        if paths and isinstance(name, Path) and not os.path.exists(name):
            raise HubError(f"{options.source}: {entry.model}: no such file")
    if (
        options is None
        and isinstance(name, Path)
        and isinstance(model, str)
        and not os.path.exists(name)
        and _is_bare(model)
    ):
        hint = did_you_mean(model, catalogue(config or load_config())) or f"; see {documentation_page('models.md')}"
        raise HubError(f"{model}: no such file, and not a name of the catalogue{hint}")
    return name, options


def _is_bare(text: str) -> bool:
    """Return True if ``text`` looks like a name rather than a path."""
    return "/" not in text and "\\" not in text and not text.endswith(".gguf")


def cached(name: Path | HubName | WebName) -> list[Path]:
    """Return the files of a model on this machine; empty if it is not there. Raises HubError."""
    from pumice.hub.repository import cached_model
    from pumice.hub.web import cached_file

    if isinstance(name, Path):
        return [name]
    try:
        return cached_model(name) if isinstance(name, HubName) else cached_file(name)
    except OSError as error:
        raise HubError(f"{error.filename or name}: cannot be read: {error.strerror or error}") from None


def _fetch(name: Path | HubName | WebName, progress: DownloadProgress | None) -> list[Path]:
    """Fetch a model on behalf of the operator, who may use any host."""
    return _fetch_from(name, progress, [], Abort(), public_only=False)


def _fetch_from(
    name: Path | HubName | WebName,
    progress: DownloadProgress | None,
    trusted: Sequence[str],
    abort: Abort,
    public_only: bool,
) -> list[Path]:
    from pumice.hub.repository import endpoint, explained, fetch_model
    from pumice.hub.web import fetch_file

    if isinstance(name, Path):
        return [name]
    with explained(str(name), downloads=True):
        from pumice.hub.client import AllowedHosts, HubClient, origin_of

        access = AllowedHosts(frozenset(origin_of(url) for url in [endpoint(), *trusted]), public_only)
        with HubClient(access, abort) as client:
            if isinstance(name, HubName):
                return fetch_model(name, client, progress)
            return fetch_file(name, client, progress)
