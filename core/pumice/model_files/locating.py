"""The file that a model's name stands for, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pumice.config import Config, load_config
from pumice.demo import demo_model_path
from pumice.errors import ConfigError
from pumice.hub.locate import locate
from pumice.options import EngineOptions
from pumice.wording import show_python


def locate_configured(
    path: str | Path | None, config: Mapping[str, object] | None, options: EngineOptions
) -> tuple[Path, Config]:
    """Return the file that ``path`` names, and its configuration; options that are None are not given."""
    arguments = arguments_of(config, options)
    settings = load_config(arguments)
    if path is None:
        return demo_model_path(), settings
    located = locate(path, settings)
    return located.path, load_config(arguments, located.options) if located.options else settings


def arguments_of(config: Mapping[str, object] | None, options: Mapping[str, object]) -> dict[str, object]:
    """Return the settings among the arguments of ``pumice.load``: options that are not None precede ``config``.

    Raises ConfigError if ``config`` is not a mapping.
    """
    if not isinstance(config, Mapping | None):
        instead = "`pumice config` lists the files that are read"
        raise ConfigError(f"config must be a mapping such as {{'n_ctx': 512}}, not {show_python(config)}; {instead}")
    return {**(config or {}), **{key: _plain(value) for key, value in options.items() if value is not None}}


def _plain(value: object) -> object:
    """Return a value as a configuration file would have it."""
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
