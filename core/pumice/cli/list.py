"""``pumice list``: the models on this machine, and the names that are known."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.info import format_bytes
from pumice.cli.options import json_option

if TYPE_CHECKING:
    from pumice.hub.store import StoredModel


@click.command("list")
@click.option("--catalogue", is_flag=True, help="List the names of the catalogue, and what each stands for.")
@json_option
def command(catalogue: bool, as_json: bool) -> None:
    """List the models that were fetched.

    The name that loads each, its size, when it came, and where it lies.
    """
    if catalogue:
        rows = list_catalogue()
        lines = [f"{row['name']:<16} {row['model']}" for row in rows]
    else:
        from pumice.hub.store import stored_models

        models = stored_models()
        rows = [describe(model) for model in models]
        width = max((len(model.name) for model in models), default=0)
        lines = [format_model(model, width) for model in models]
    if not rows and not as_json:
        click.echo("no models were fetched yet: `pumice pull NAME` fetches one (`pumice list --catalogue`)", err=True)
    click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(lines), nl=as_json or bool(lines))


def list_catalogue() -> list[dict[str, Any]]:
    """Every name of the catalogue with its options."""
    from pumice.config import load_config
    from pumice.hub.catalogue import catalogue, look_up

    config = load_config()
    entries = {name: look_up(name, config) for name in sorted(catalogue(config))}
    return [{"name": name, "model": entry.model, "options": entry.options.data} for name, entry in entries.items()]


def describe(model: StoredModel) -> dict[str, Any]:
    """A model as JSON can hold it."""
    modified = datetime.fromtimestamp(model.modified).astimezone().isoformat(timespec="seconds")
    row = {"name": model.name, "bytes": model.size, "modified": modified, "path": str(model.files[0])}
    return {**row, "unfinished": True} if model.unfinished else row


def format_model(model: StoredModel, width: int) -> str:
    """A line for people."""
    date = datetime.fromtimestamp(model.modified).strftime("%Y-%m-%d %H:%M")
    what = "unfinished: pumice pull goes on, pumice rm removes it" if model.unfinished else model.files[0]
    return f"{model.name:<{width}}  {format_bytes(model.size):>10}  {date}  {what}"
