"""``pumice list``: downloaded models, and the names of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.messages import say
from pumice.cli.options import json_option
from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice.wording import format_bytes, printable

if TYPE_CHECKING:
    from pumice.hub.catalogue import CatalogueEntry
    from pumice.hub.store import StoredModel


@click.command("list")
@option("--catalogue", is_flag=True, help="List the names of the catalogue instead, each with its model.")
@json_option
def command(catalogue: bool, as_json: bool) -> None:
    """List downloaded models, and created ones.

    Shows the name that loads each model, its size, its date and its path.
    """
    if catalogue:
        rows = list_catalogue()
        lines = [
            printable(f"{row['name']:<16} {_size(row['gb']):>8}  {row['model']}{_purposes(row['suits'])}")
            for row in rows
        ]
    else:
        from pumice.hub.store import stored_models

        models = stored_models()
        created = list_created()
        rows = [*map(describe, models), *created]
        width = max((len(row["name"]) for row in rows), default=0)
        lines = [format_model(model, width) for model in models]
        lines += [printable(f"{row['name']:<{width}}  {'created':>10}  from {row['from']}") for row in created]
    if not rows and not as_json:
        echo(f"no models were fetched yet: {_proposal()}; `pumice list --catalogue` names others", err=True)
    echo(json.dumps(rows, indent=2) if as_json else "\n".join(lines), nl=as_json or bool(lines))


def list_catalogue() -> list[dict[str, Any]]:
    """Return the names of the catalogue, with their models, options and purposes; warn of wrong entries."""
    from pumice.config import load_config
    from pumice.errors import ConfigError
    from pumice.hub.catalogue import catalogue, look_up

    config = load_config()
    entries: dict[str, CatalogueEntry] = {}
    for name in sorted(catalogue(config)):
        try:
            entries[name] = look_up(name, config)
        except ConfigError as error:
            say("warning", str(error))
    return [
        {
            "name": name,
            "model": entry.model,
            "gb": entry.gb,
            "options": entry.options.data,
            "suits": list(entry.suits),
        }
        for name, entry in entries.items()
    ]


def _proposal() -> str:
    """Return a command that fetches a small model, or any."""
    from pumice.config import load_config
    from pumice.hub.catalogue import look_up, models_for

    config = load_config()
    for name in models_for("trying", config):
        return f"`pumice pull {name}` fetches a small one ({_size(look_up(name, config).gb)})"
    return "`pumice pull NAME` fetches one"


def _size(gb: float | None) -> str:
    return f"{gb:.2g} GB" if gb else ""


def _purposes(suits: Sequence[str]) -> str:
    return f"  (suits {', '.join(suits)})" if suits else ""


def list_created() -> list[dict[str, Any]]:
    """Return the models that `pumice create` made, each with the name of the one it is made of."""
    from pumice.config import load_config
    from pumice.hub.created import created_models

    models = load_config().models
    return [{"name": name, "from": models[name].get("model", "")} for name in created_models()]


def describe(model: StoredModel) -> dict[str, Any]:
    """Return the JSON of a model."""
    modified = datetime.fromtimestamp(model.modified).astimezone().isoformat(timespec="seconds")
    row = {"name": model.name, "bytes": model.size, "modified": modified, "path": str(model.files[0])}
    return {**row, "unfinished": True} if model.unfinished else row


def format_model(model: StoredModel, width: int) -> str:
    """Return a readable line."""
    date = datetime.fromtimestamp(model.modified).strftime("%Y-%m-%d %H:%M")
    path = "unfinished: pumice pull goes on, pumice rm removes it" if model.unfinished else model.files[0]
    return f"{model.name:<{width}}  {format_bytes(model.size):>10}  {date}  {path}"
