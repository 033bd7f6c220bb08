"""The catalogue: short names of models and the options that their makers recommend.

``catalogue.yaml`` here, and over it the key ``models`` of the configuration, merged name by name and option by option.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pumice.config import Config, Layer
from pumice.errors import ConfigError


class Entry(NamedTuple):
    """A name of the catalogue, explained."""

    model: str  # what it stands for: a path, or any other name of a model
    options: Layer  # keys of the configuration


def catalogue(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """Every name and its record: the key ``model``, and keys of the configuration."""
    shipped = _shipped()
    return {name: {**shipped.get(name, {}), **config.models.get(name, {})} for name in [*shipped, *config.models]}


def look_up(name: str, config: Config) -> Entry:
    """The entry of a name. A name may stand for another one, whose options it then has too.

    Raises ConfigError for an entry that names no model, or goes round in a circle.
    """
    records = catalogue(config)
    options: dict[str, Any] = {}
    seen: list[str] = []
    while name in records and name not in seen:
        seen.append(name)
        record = dict(records[name])
        model = record.pop("model", None)
        if not isinstance(model, str):
            raise ConfigError(f"{config.source('models', name)}: models.{name}: the key 'model' is missing")
        options = {**record, **options}
        name = model
    if name in seen:
        raise ConfigError(f"{config.source('models', name)}: models.{name} stands for itself")
    return Entry(name, Layer(f"models.{seen[0]}", options))


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    import yaml

    records: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "catalogue.yaml").read_text())
    return records
