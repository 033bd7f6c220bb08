"""``pumice pull``: download models, or their newest versions."""

import click

from pumice.cli.output import echo
from pumice.cli.progress import download_bar


@click.command("pull")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
def command(models: tuple[str, ...]) -> None:
    """Download models, or their newest versions.

    MODEL is a name of the catalogue, hf.co/owner/repository[:QUANTIZATION or /FILE], or a web address. Writes the path
    of each model. An interrupted download continues where it ended.
    """
    from pumice.hub import fetch

    for model in models:
        with download_bar() as progress:
            paths = fetch(model, progress=progress)
        echo(str(paths[0]))
