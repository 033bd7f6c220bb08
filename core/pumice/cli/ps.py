"""``pumice ps``: the models that are loaded now."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pumice.cli.cluster import find_cluster
from pumice.cli.info import format_bytes
from pumice.cli.options import json_option

if TYPE_CHECKING:
    from pumice.running import Running


@click.command("ps")
@click.option("--ray", "address", is_flag=False, flag_value="auto", metavar="[ADDRESS]", help="In a Ray cluster.")
@json_option
def command(address: str | None, as_json: bool) -> None:
    """List the models that are loaded.

    By which process and command, on which backends, with how much memory, and for how long.
    """
    from pumice.running import processes

    if address is None:
        found = processes()
    else:
        cluster = find_cluster(address)
        with cluster.connected():
            found = cluster.running()
    if not found and not as_json:
        click.echo("no models are loaded", err=True)
    lines = [format_running(running) for running in found]
    text = json.dumps([asdict(running) for running in found], indent=2) if as_json else "\n".join(lines)
    click.echo(text, nl=as_json or bool(lines))


def format_running(running: Running) -> str:
    """A line for people."""
    minutes = max(0, int(time.time() - running.since)) // 60
    age = f"{minutes // 60} h {minutes % 60:02} min"
    size = format_bytes(sum(running.memory.values()))
    where = f"  {running.address}" if running.address else ""
    backends = ",".join(running.backends)
    return f"{running.pid:>8}  {running.command:<6} {size:>10}  {backends:<10}  {age:>10}  {running.model}{where}"
