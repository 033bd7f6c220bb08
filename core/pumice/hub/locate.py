"""From the name of a model to its file, and to the options it is to be loaded with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pumice.config import Config, Layer, load_config
from pumice.errors import HubError
from pumice.handbook import page
from pumice.hub.catalogue import catalogue, look_up
from pumice.hub.download import Progress
from pumice.hub.names import CatalogueName, HubName, WebName, parse_name
from pumice.suggest import did_you_mean


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


def resolve_name(model: str | Path, config: Config | None = None) -> tuple[Path | HubName | WebName, Layer | None]:
    """What a name stands for, and the options that go with it."""
    name = parse_name(model, lambda text: text in catalogue(config or load_config()))
    options = None
    if isinstance(name, CatalogueName):
        entry = look_up(name.name, config or load_config())
        name, options = parse_name(entry.model), entry.options
        assert not isinstance(name, CatalogueName)
    if isinstance(name, Path) and isinstance(model, str) and not os.path.exists(name) and _is_bare(model):
        hint = did_you_mean(model, catalogue(config or load_config())) or f"; see {page('models.md')}"
        raise HubError(f"{model}: no such file, and no name of the catalogue{hint}")
    return name, options


def _is_bare(text: str) -> bool:
    """Whether ``text`` looks like a name and not like a path."""
    return "/" not in text and "\\" not in text and not text.endswith(".gguf")


def cached(name: Path | HubName | WebName) -> list[Path]:
    """The files of a model that are on this machine; empty if it is not."""
    from pumice.hub.repository import cached_model
    from pumice.hub.web import cached_file

    if isinstance(name, Path):
        return [name]
    return cached_model(name) if isinstance(name, HubName) else cached_file(name)


def _fetch(name: Path | HubName | WebName, progress: Progress | None) -> list[Path]:
    from pumice.hub.repository import fetch_model
    from pumice.hub.web import fetch_file

    if isinstance(name, Path):
        return [name]
    return fetch_model(name, progress) if isinstance(name, HubName) else fetch_file(name, progress)
