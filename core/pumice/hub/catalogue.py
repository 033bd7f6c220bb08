"""The catalogue: short names of models, with the options that their authors recommend, and the demo models.

The key ``models`` of the configuration overrides ``catalogue.yaml`` name by name and option by option.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from pumice.config import Config, Layer, load_config, validate
from pumice.demo import DEMOS
from pumice.errors import ConfigError
from pumice.hub.names import CatalogueName, parse_name


class ChatDefaults(BaseModel):
    """Defaults of chats with a model, the key ``chat`` of its entry; a chat's own settings take precedence.

    Attributes:
        system: System message.
        messages: Messages before the first one, with ``role`` and ``content``.
        stop: Texts that end an answer.
        max_tokens: Maximum number of tokens of an answer; None or -1: no limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str = ""
    messages: list[dict[str, str]] = []
    stop: list[str] = []
    max_tokens: int | None = Field(default=None, ge=-2, lt=2**31)


class CatalogueEntry(NamedTuple):
    """A resolved name of the catalogue."""

    model: str  # path, or another name of a model
    options: Layer  # keys of the configuration
    chat: ChatDefaults
    suits: tuple[str, ...] = ()  # purposes
    gb: float | None = None  # rounded size of the model's file in GB


class _About(BaseModel):
    """The keys ``suits`` and ``gb`` of an entry, checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suits: list[Literal["coding", "trying"]] = []
    gb: float | None = Field(None, gt=0, allow_inf_nan=False)


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
        about = {key: record.pop(key) for key in _About.model_fields if key in record} | about
        chat = {**own, **chat} if isinstance(own, dict) else {"chat": own}
        options = {**record, **options}
        name = model
    if name in names:
        raise ConfigError(f"{config.source('models', name)}: models.{name} refers to itself")
    source = f"models.{names[0]}"
    checked = validate(_About, about, source)
    defaults = validate(ChatDefaults, chat, f"{source}.chat")
    return CatalogueEntry(name, Layer(source, options), defaults, tuple(checked.suits), checked.gb)


def models_for(purpose: str, config: Config | None = None) -> list[str]:
    """Return the names whose entries say that their model suits a purpose, such as ``"coding"``."""
    config = config or load_config()
    names = []
    for name in catalogue(config):
        with contextlib.suppress(ConfigError):  # whoever loads the model reads what is wrong
            if purpose in look_up(name, config).suits:
                names.append(name)
    return names


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
