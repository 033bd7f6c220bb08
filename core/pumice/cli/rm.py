"""``pumice rm``: remove downloaded models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice.wording import format_bytes

if TYPE_CHECKING:
    from pumice.hub.store import StoredModel


@click.command("rm")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@option("-y", "--yes", is_flag=True, help="Remove without asking.")
def command(models: tuple[str, ...], yes: bool) -> None:
    """Remove downloaded models, or created ones.

    MODEL is a name as `pumice list` writes it, or any other name of the same files. Your own files are not removed.
    """
    from pumice.hub.created import created_models, remove_created
    from pumice.hub.store import remove

    created = [name for name in models if name.removesuffix(":latest") in created_models()]
    for name in created:
        if yes or click.confirm(f"Remove {name}?", err=True):
            remove_created(name)
            echo(f"removed {name}", err=True)
    fetched = [name for name in models if name not in created]
    chosen = {(model.name, model.unfinished): model for name in fetched for model in [find(name)]}
    for model in chosen.values():
        title = f"{model.name} ({format_bytes(model.size)})"
        if yes or click.confirm(f"Remove {title}?", err=True):
            remove(model)
            echo(f"removed {title}", err=True)


def find(name: str) -> StoredModel:
    """Return the downloaded model of a name, perhaps unfinished. Raises HubError if there is none."""
    from pumice.errors import HubError
    from pumice.hub.locate import cached, resolve_name
    from pumice.hub.names import HubName, WebName
    from pumice.hub.store import stored_models

    resolved, _ = resolve_name(name)
    paths = cached(resolved)
    models = stored_models()
    for model in models:
        if any(path in model.files for path in paths):
            return model
    source = resolved.url if isinstance(resolved, WebName) else ""
    source = f"hf.co/{resolved.repo}" if isinstance(resolved, HubName) else source
    for model in models:
        if model.unfinished and model.name == source:
            return model
    raise HubError(f"{name} is not a downloaded model; `pumice list` shows them")
