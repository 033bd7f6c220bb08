"""The options of a cluster of machines that run a model."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.options import Command

if TYPE_CHECKING:
    from pumice.cluster import Cluster, Replicas

_CLUSTER_OPTIONS = [
    click.option(
        "--ray",
        "address",
        is_flag=False,
        flag_value="auto",
        metavar="[ADDRESS]",
        help="On the machines of a Ray cluster; needs pumice[ray].",
    ),
    click.option("--replicas", default="1", metavar="N|MIN:MAX", help="With --ray: engines, as many as are needed."),
    click.option("--replica-cpus", default=1.0, type=click.FloatRange(0), help="With --ray: CPUs of an engine."),
    click.option("--replica-gpus", default=0.0, type=click.FloatRange(0), help="With --ray: GPUs of an engine."),
    click.option(
        "--replica-wait",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="With --ray: how long there may be no room.  [default: any time]",
    ),
    click.option(
        "--stages", metavar="N|SIZE", help="With --ray: machines that share a model's layers, or memory of each."
    ),
]


def cluster_options(command: Command) -> Command:
    """The options that ``take_cluster`` takes."""
    for option in reversed(_CLUSTER_OPTIONS):
        command = option(command)
    return command


def take_cluster(options: dict[str, Any]) -> tuple[Cluster | None, Replicas]:
    """Remove the options of a cluster from ``options``: the one that was asked for, and what an engine has there."""
    replicas = parse_replicas(*(options.pop(name) for name in ("replicas", "replica_cpus", "replica_gpus")))
    address, stages, wait = (options.pop(name) for name in ("address", "stages", "replica_wait"))
    if stages is not None:
        if address is None:
            raise click.UsageError("--stages needs --ray: machines that share a model's layers are those of a cluster")
        replicas = replace(replicas, **parse_stages(stages))
    if wait is not None:
        replicas = replace(replicas, wait_seconds=wait)
    return None if address is None else find_cluster(address), replicas


def parse_replicas(text: str, n_cpus: float, n_gpus: float) -> Replicas:
    """``"1:8"`` as 1 to 8 of them. Raises UsageError."""
    from pumice.cluster import Replicas

    least, colon, most = text.partition(":")
    try:
        replicas = Replicas(int(least), int(most) if colon else int(least), n_cpus, n_gpus)
        if not 1 <= replicas.least <= replicas.most:
            raise ValueError
    except ValueError:
        raise click.UsageError(f"--replicas: expected a number, or MIN:MAX, not {text!r}") from None
    return replicas


def parse_stages(text: str) -> dict[str, int]:
    """``4``, or ``20GiB`` of memory for each, as fields of ``Replicas``. Raises UsageError."""
    if text.isdecimal() and int(text):
        return {"n_stages": int(text)}
    found = re.fullmatch(r"([0-9.]+) ?(G|M)i?B?", text)
    with contextlib.suppress(ValueError):
        if found and float(found[1]):
            return {"stage_bytes": int(float(found[1]) * (2**30 if found[2] == "G" else 2**20))}
    raise click.UsageError(f"--stages: expected a number, or the memory of each as 20GiB, not {text!r}")


def find_cluster(address: str) -> Cluster:
    """The cluster of Ray at an address, or with ``auto`` the one that there is. Raises UsageError for what is none."""
    from pumice.config import load_config
    from pumice.registry import load_registry

    if address != "auto" and ":" not in address:
        raise click.UsageError(
            f"--ray: {address!r} is no address such as 10.0.0.1:6379; give --ray=auto, or --ray last"
        )
    return load_registry(load_config()).clusters.find("ray")("" if address == "auto" else address)
