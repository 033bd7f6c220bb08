"""The catalogue: short names of models, with the options that their authors recommend, and the demo models.

The key ``models`` of the configuration overrides ``catalogue.yaml`` name by name and option by option.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pumice.config import Config, Layer
from pumice.demo import DEMOS
from pumice.errors import ConfigError


class CatalogueEntry(NamedTuple):
    """A resolved name of the catalogue."""

    model: str  # path, or another name of a model
    options: Layer  # keys of the configuration


def catalogue(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """Return the record of every name: the key ``model``, and keys of the configuration."""
    shipped = _shipped()
    return {name: {**shipped.get(name, {}), **config.models.get(name, {})} for name in [*shipped, *config.models]}


def look_up(name: str, config: Config) -> CatalogueEntry:
    """Return the entry of a name, which may refer to another name and then inherits its options.

    Raises:
        ConfigError: an entry has no model, or refers to itself.
    """
    records = catalogue(config)
    options: dict[str, Any] = {}
    names: list[str] = []
    while name in records and name not in names:
        names.append(name)
        record = dict(records[name])
        model = record.pop("model", None)
        if not isinstance(model, str):
            raise ConfigError(f"{config.source('models', name)}: models.{name}: the key 'model' is missing")
        options = {**record, **options}
        name = model
    if name in names:
        raise ConfigError(f"{config.source('models', name)}: models.{name} refers to itself")
    return CatalogueEntry(name, Layer(f"models.{names[0]}", options))


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    import yaml

    records: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "catalogue.yaml").read_text())
    return {**{name: {"model": str(path)} for name, path in DEMOS.items()}, **records}
