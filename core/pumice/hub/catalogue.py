"""The catalogue: short names of models, with the options that their authors recommend, and the demo models.

The key ``models`` of the configuration overrides ``catalogue.yaml`` name by name and option by option.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Lt

from pumice.config import ARGUMENTS, Config, Layer, load_config
from pumice.demo import DEMOS
from pumice.errors import ConfigError
from pumice.hub.names import CatalogueName, parse_name
from pumice.options.reading import SettingsReader, check_finite, fields_of


@dataclass(frozen=True)
class ChatDefaults:
    """Defaults of chats with a model, the key ``chat`` of its entry; a chat's own settings take precedence.

    Attributes:
        system: System message.
        messages: Messages before the first one, with ``role`` and ``content``.
        stop: Texts that end an answer.
        max_tokens: Maximum number of tokens of an answer; None or -1: no limit.
    """

    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    max_tokens: Annotated[int | None, Ge(-2), Lt(2**31)] = None


class CatalogueEntry(NamedTuple):
    """A resolved name of the catalogue."""

    model: str  # path, or another name of a model
    options: Layer  # keys of the configuration
    chat: ChatDefaults
    suits: tuple[str, ...] = ()  # purposes
    gb: float | None = None  # rounded size of the model's file in GB


@dataclass(frozen=True)
class _About:
    """The keys ``suits`` and ``gb`` of an entry, checked."""

    suits: list[Literal["coding", "trying"]] = field(default_factory=list)
    gb: Annotated[float | None, Gt(0), check_finite] = None


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
    chat: dict[str, Any] = {}
    about: dict[str, Any] = {}
    names: list[str] = []
    while name in records and name not in names:
        names.append(name)
        record = dict(records[name])
        model = record.pop("model", None)
        if not isinstance(model, str):
            raise ConfigError(f"{config.source('models', name)}: models.{name}: the key 'model' is missing")
        own = record.pop("chat", {})
        about = {key: record.pop(key) for key in fields_of(_About) if key in record} | about
        chat = {**own, **chat} if isinstance(own, dict) else {"chat": own}
        options = {**record, **options}
        name = model
    if name in names:
        raise ConfigError(f"{config.source('models', name)}: models.{name} refers to itself")
    file, source = config.source("models", names[0]), f"models.{names[0]}"
    if file != ARGUMENTS:  # a name of the package has none
        source = f"{file}: {source}"
    checked = SettingsReader(source).record(_About, about)
    defaults = SettingsReader(f"{source}.chat").record(ChatDefaults, chat)
    return CatalogueEntry(name, Layer(source, options), defaults, tuple(checked.suits), checked.gb)


def models_for(purpose: str, config: Config | None = None) -> list[str]:
    """Return the models whose entries say that they suit a purpose, such as ``"coding"``, by their first names."""
    config = config or load_config()
    names: dict[str, str] = {}
    for name in catalogue(config):
        with contextlib.suppress(ConfigError):  # whoever loads the model reads what is wrong
            entry = look_up(name, config)
            if purpose in entry.suits:
                names.setdefault(entry.model, name)
    return list(names.values())


def chat_defaults(model: str | Path, config: Config | None = None) -> ChatDefaults:
    """Return how chats with a model begin, of its entry in the catalogue; all empty without one."""
    config = config or load_config()
    name = parse_name(model, lambda text: text in catalogue(config))
    return look_up(name.name, config).chat if isinstance(name, CatalogueName) else ChatDefaults()


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    import yaml

    records: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "catalogue.yaml").read_text())
    return {**{name: {"model": str(path)} for name, path in DEMOS.items()}, **records}
