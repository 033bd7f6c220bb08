"""``pumice devices``: the devices of each backend, or the reason why it is not available."""

from __future__ import annotations

import json

import click

from pumice.cli.device_list import format_backend, list_backends
from pumice.cli.options import json_option
from pumice.cli.output import echo


@click.command("devices")
@json_option
def command(as_json: bool) -> None:
    """List the devices of each backend.

    Shows why a backend is not available on this machine, and what to install.
    """
    backends = list_backends()
    echo(json.dumps(backends, indent=2) if as_json else "\n".join(map(format_backend, backends)))
