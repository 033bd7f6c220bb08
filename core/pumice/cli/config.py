"""``pumice config``: the settings in effect and their sources."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.options import json_option, load_options
from pumice.cli.output import echo

if TYPE_CHECKING:
    from pumice.config import Config
    from pumice.registry import Registry

DEFAULT = "built in"  # source of defaults of backends and samplers


@click.command("config")
@json_option
@load_options
def command(as_json: bool, config: dict[str, Any], **options: Any) -> None:
    """Show the settings in effect and their sources.

    Later files of the list override earlier ones. Options of this command have the same effect as for `pumice run`.
    """
    from pumice.config import load_config
    from pumice.registry import get_registry

    settings = load_config({**config, **{key: value for key, value in options.items() if value is not None}})
    shown = describe(settings, get_registry(settings))
    echo(json.dumps(shown, indent=2, default=str) if as_json else format_settings(shown))


def describe(config: Config, registry: Registry) -> dict[str, Any]:
    """Return the files, lowest layer first, and for each dotted key its value and source."""
    settings = {
        ".".join(map(str, key)): {"value": value, "source": config.source(*key)}
        for key, value in _leaves({**config.as_mapping(), "sampling": {}})
    }
    samplers = registry.samplers.without_conflicts(config.samplers)
    backends = registry.backends.without_conflicts(config.backends)
    sections: dict[str, list[type]] = {name: [cls.Options] for name, cls in backends.items()}
    for section, classes in {"sampling": [*samplers.values()], **sections}.items():
        for cls in classes:
            for key, value in _defaults(cls):
                settings.setdefault(f"{section}.{key}", {"value": value, "source": DEFAULT})
    for key, value in config.sampling.items():
        settings[f"sampling.{key}"] = {"value": value, "source": config.source("sampling", key)}
    return {"files": config.files, "settings": settings}


def _defaults(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass that have defaults, with the defaults."""
    for item in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if item.init and item.default is not dataclasses.MISSING:
            yield item.name, item.default
        elif item.init and item.default_factory is not dataclasses.MISSING:
            yield item.name, item.default_factory()


def _leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the keys and values of nested maps; each value has its own source."""
    if isinstance(value, Mapping) and value:
        for part, inner in value.items():
            yield from _leaves(inner, (*key, part))
    else:
        yield key, value


def format_settings(shown: dict[str, Any]) -> str:
    """Return the numbered files, then a line for each key with the number of its file or another source."""
    numbers = {path: f"[{i}]" for i, path in enumerate(shown["files"])}
    lines = [f"{number} {path}" for path, number in numbers.items()]
    width = max(map(len, shown["settings"]))
    for key, item in shown["settings"].items():
        value = json.dumps(item["value"], ensure_ascii=False, default=str)
        lines.append(f"{numbers.get(item['source'], item['source']):<9} {key:<{width}}  {value}")
    return "\n".join(lines)
