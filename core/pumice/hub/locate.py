"""From the name of a model to its file, and to the options it is to be loaded with."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pumice.config import Config, Layer, load_config
from pumice.errors import HubError, UnknownModelError
from pumice.handbook import page
from pumice.hub.abort import Abort, AbortedError
from pumice.hub.catalogue import catalogue, look_up
from pumice.hub.download import Progress
from pumice.hub.names import CatalogueName, HubName, WebName, parse_name
from pumice.suggest import did_you_mean

_logger = logging.getLogger("pumice")


class Located(NamedTuple):
    """A model on this machine."""

    path: Path  # the file, or its first part
    options: Layer | None  # what the catalogue says it is to be loaded with


def locate(model: str | Path, config: Config | None = None, progress: Progress | None = None) -> Located:
    """The file of ``model``: a path, or a name of what may be fetched. What is here already is not asked for again.

    ``config`` is read if a name needs the catalogue and none is given. ``progress`` is called with what is
    downloaded, the bytes done and the bytes in all. Raises HubError.
    """
    name, options = resolve_name(model, config)
    paths = cached(name) or _fetch(name, progress)
    return Located(paths[0], options)


def fetch(model: str, config: Config | None = None, progress: Progress | None = None) -> list[Path]:
    """Ask where ``model`` comes from for its files, and fetch those that are new. Returns them all."""
    name, _ = resolve_name(model, config)
    if isinstance(name, Path) and not name.is_file():
        raise HubError(f"{model}: no such file, and no name of a model that could be fetched")
    return _fetch(name, progress)


class ClientFetch:
    """A download for a client of the server, whose ``model`` is no path of this machine.

    Hosts are public or the operator's own: the Hub's endpoint, and addresses in the catalogue.

    Raises UnknownModelError for a name that means no model.
    """

    def __init__(self, model: str, config: Config | None = None) -> None:
        config = config or load_config()
        self._model = model
        self._abort = Abort()
        self._name, self._options = resolve_name(model, config, paths=False)
        if isinstance(self._name, WebName) and self._options is None:
            address = urlsplit(self._name.url)
            if address.scheme != "https" or "@" in address.netloc:
                raise UnknownModelError(f"{model}: clients name addresses that begin with https://, without a user")

    def run(self, progress: Progress) -> Located:
        """Fetch the model. What goes wrong says nothing of what other hosts answered: the log does.

        Raises UnknownModelError if the Hub has no such model, HubError if it cannot be fetched.
        """
        try:
            paths = _fetch_from(self._name, progress, self._trusted(), self._abort, public_only=True)
            return Located(paths[0], self._options)
        except UnknownModelError:
            raise
        except AbortedError as error:
            _logger.info("%s: %s", self._model, error)
            raise
        except HubError as error:
            _logger.error("%s", error)
            raise HubError(f"{self._model}: cannot be fetched; the server's log says why") from None

    def abort(self) -> None:
        """End ``run``. Any thread may call this."""
        self._abort.abort()

    def _trusted(self) -> list[str]:
        """Addresses that the operator named besides the Hub's."""
        return [self._name.url] if isinstance(self._name, WebName) and self._options is not None else []


def resolve_name(
    model: str | Path, config: Config | None = None, *, paths: bool = True
) -> tuple[Path | HubName | WebName, Layer | None]:
    """What a name stands for, and the options that go with it. Without ``paths`` none is looked for."""
    name = parse_name(model, lambda text: text in catalogue(config or load_config()), paths=paths)
    options = None
    if isinstance(name, CatalogueName):
        entry = look_up(name.name, config or load_config())
        name, options = parse_name(entry.model), entry.options
        assert not isinstance(name, CatalogueName)
    if (
        options is None
        and isinstance(name, Path)
        and isinstance(model, str)
        and not os.path.exists(name)
        and _is_bare(model)
    ):
        hint = did_you_mean(model, catalogue(config or load_config())) or f"; see {page('models.md')}"
        raise HubError(f"{model}: no such file, and no name of the catalogue{hint}")
    return name, options


def _is_bare(text: str) -> bool:
    """Whether ``text`` looks like a name and not like a path."""
    return "/" not in text and "\\" not in text and not text.endswith(".gguf")


def cached(name: Path | HubName | WebName) -> list[Path]:
    """The files of a model that are on this machine; empty if it is not. Raises HubError."""
    from pumice.hub.repository import cached_model
    from pumice.hub.web import cached_file

    if isinstance(name, Path):
        return [name]
    try:
        return cached_model(name) if isinstance(name, HubName) else cached_file(name)
    except OSError as error:
        raise HubError(f"{error.filename or name}: cannot be read: {error.strerror or error}") from None


def _fetch(name: Path | HubName | WebName, progress: Progress | None) -> list[Path]:
    """For the operator, who may name any host."""
    return _fetch_from(name, progress, [], Abort(), public_only=False)


def _fetch_from(
    name: Path | HubName | WebName, progress: Progress | None, trusted: Sequence[str], abort: Abort, public_only: bool
) -> list[Path]:
    from pumice.hub.repository import endpoint, explained, fetch_model
    from pumice.hub.web import fetch_file

    if isinstance(name, Path):
        return [name]
    with explained(str(name)):
        from pumice.hub.client import Access, HubClient, origin_of

        access = Access(frozenset(origin_of(url) for url in [endpoint(), *trusted]), public_only)
        with HubClient(access, abort) as client:
            if isinstance(name, HubName):
                return fetch_model(name, client, progress)
            return fetch_file(name, client, progress)
