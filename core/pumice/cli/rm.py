"""``pumice rm``: remove models that were fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pumice.cli.info import format_bytes

if TYPE_CHECKING:
    from pumice.hub.store import StoredModel


@click.command("rm")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(models: tuple[str, ...], yes: bool) -> None:
    """Remove models that were fetched.

    MODEL is a name as `pumice list` writes it, or any other that loads the same files. Files of your own stay.
    """
    from pumice.hub.store import remove

    chosen = {(model.name, model.unfinished): model for name in models for model in [find(name)]}
    for model in chosen.values():
        what = f"{model.name} ({format_bytes(model.size)})"
        if yes or click.confirm(f"Remove {what}?", err=True):
            remove(model)
            click.echo(f"removed {what}", err=True)


def find(name: str) -> StoredModel:
    """The fetched model of a name, or what is here of one. Raises HubError if there is none."""
    from pumice.errors import HubError
    from pumice.hub.locate import cached, resolve_name
    from pumice.hub.names import HubName, WebName
    from pumice.hub.store import stored_models

    known, _ = resolve_name(name)
    paths = cached(known)
    models = stored_models()
    for model in models:
        if any(path in model.files for path in paths):
            return model
    source = f"hf.co/{known.repo}" if isinstance(known, HubName) else known.url if isinstance(known, WebName) else ""
    for model in models:
        if model.unfinished and model.name == source:
            return model
    raise HubError(f"{name} is no model that was fetched; `pumice list` shows those")
