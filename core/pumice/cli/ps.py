"""``pumice ps``: list loaded models."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pumice.cli.cluster import find_cluster, ray_option
from pumice.cli.options import json_option
from pumice.cli.output import echo
from pumice.wording import format_bytes

if TYPE_CHECKING:
    from pumice.process_list import RunningModel


@click.command("ps")
@ray_option("List the engines of a Ray cluster; without ADDRESS, of this machine's cluster.")
@json_option
def command(address: str | None, as_json: bool) -> None:
    """List loaded models.

    Shows the process and command, the memory, the backends, and the time since loading.
    """
    from pumice.process_list import processes

    if address is None:
        models = processes()
    else:
        cluster = find_cluster(address)
        with cluster.connected(start=False):
            models = cluster.running()
    if not models and not as_json:
        echo("no models are loaded", err=True)
    lines = [format_running(running) for running in models]
    text = json.dumps([asdict(running) for running in models], indent=2) if as_json else "\n".join(lines)
    echo(text, nl=as_json or bool(lines))


def format_running(running: RunningModel) -> str:
    """Return a readable line."""
    minutes = max(0, int(time.time() - running.since)) // 60  # noqa: TID251 (shown)
    age = f"{minutes // 60} h {minutes % 60:02} min"
    size = format_bytes(sum(running.memory.values()))
    where = f"  {running.address}" if running.address else ""
    backends = ",".join(running.backends)
    return f"{running.pid:>8}  {running.command:<6} {size:>10}  {backends:<10}  {age:>10}  {running.model}{where}"
