"""Models that the user has made of others (`pumice create`): one file of configuration for each, with one entry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pumice.cache_files import replace_file
from pumice.config import Layer, created_files, created_models_folder, load_config
from pumice.errors import ConfigError, HubError
from pumice.hub.catalogue import look_up

_MAX_NAME = 80  # characters
_MAX_FILE_NAME = 200  # bytes; file systems take 255, and a file has a longer name while it is written
_SUFFIX = ".yaml"


def create_model(name: str, record: dict[str, Any]) -> Path:
    """Write an entry of the catalogue, in place of an earlier one of this name, and return its file.

    Raises:
        ConfigError: The name, or a value of the entry, is wrong.
        HubError: The file cannot be written.
    """
    import yaml

    name = name.removesuffix(":latest")
    if not name or len(name) > _MAX_NAME or not name.isprintable() or name.isspace() or name.endswith(".gguf"):
        raise ConfigError(f"{name!r:.100}: the name of a model must be 1 to {_MAX_NAME} printable characters")
    path = _path(name)
    if len(path.name) > _MAX_FILE_NAME:
        raise ConfigError(
            f"{name!r:.100}: the name makes a file's name of {len(path.name)} bytes, and the maximum is "
            f"{_MAX_FILE_NAME}; choose a shorter one"
        )
    _check(name, record)
    text = yaml.safe_dump({"models": {name: record}}, allow_unicode=True, sort_keys=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise HubError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def remove_created(name: str) -> bool:
    """Remove an entry that ``create_model`` wrote; its model's files stay. Returns False if there is none."""
    path = _path(name.removesuffix(":latest"))
    if len(path.name) > _MAX_FILE_NAME:
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HubError(f"{name}: cannot be removed: {error.strerror}") from None
    return True


def created_models() -> list[str]:
    """Return the names of the entries, sorted."""
    names = load_config().models.keys()
    made = {unquote(file.name.removesuffix(_SUFFIX)) for file in created_files()}
    return sorted(made & names)


def _check(name: str, record: dict[str, Any]) -> None:
    """Raise ConfigError for an entry that could not be loaded."""
    config = load_config({"models": {name: record}})
    entry = look_up(name, config)
    load_config(model=Layer(name, entry.options.data))


def _path(name: str) -> Path:
    return created_models_folder() / f"{quote(name, safe='')}{_SUFFIX}"
