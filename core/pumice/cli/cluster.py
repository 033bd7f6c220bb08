"""Options of commands that run models on a cluster."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from pumice.cli.options import CommandFunction
from pumice.cli.vocabulary import Decorator, option, with_options

if TYPE_CHECKING:
    from pumice.cluster import Cluster, Replicas
    from pumice.model import Model


def ray_option(help: str) -> Decorator:
    """Return the decorator of ``--ray [ADDRESS]``."""
    return option("--ray", "address", is_flag=False, flag_value="auto", metavar="[ADDRESS]", group="Cluster", help=help)


_CLUSTER_OPTIONS = [
    ray_option("Run engines on a Ray cluster; without ADDRESS, on the one of this machine. Needs pumice[ray]."),
    option(
        "--replicas",
        default="1",
        metavar="N|MIN:MAX",
        group="Cluster",
        advanced=True,
        help="Number of engines; MIN:MAX follows the load.",
    ),
    option(
        "--replica-cpus",
        default=1.0,
        type=click.FloatRange(0),
        group="Cluster",
        advanced=True,
        help="Number of CPUs per engine.",
    ),
    option(
        "--replica-gpus",
        default=0.0,
        type=click.FloatRange(0),
        group="Cluster",
        advanced=True,
        help="Number of GPUs per engine.",
    ),
    option(
        "--replica-wait",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        group="Cluster",
        advanced=True,
        help="Maximum time to wait for free machines, in seconds.  [default: unlimited]",
    ),
    option(
        "--stages",
        metavar="N|SIZE",
        group="Cluster",
        advanced=True,
        help="Number of machines that share a model's layers, or the memory of each, such as 20GiB.",
    ),
]


def cluster_options(command: CommandFunction) -> CommandFunction:
    """Add the options of a cluster to a command."""
    return with_options(command, _CLUSTER_OPTIONS)


def take_cluster(options: dict[str, Any]) -> tuple[Cluster[Model] | None, Replicas]:
    """Remove the options of a cluster from ``options``, and return the cluster, None without one, and its replicas."""
    if options["address"] is None:
        _check_no_replicas()
    replicas = parse_replicas(*(options.pop(name) for name in ("replicas", "replica_cpus", "replica_gpus")))
    address, stages, wait = (options.pop(name) for name in ("address", "stages", "replica_wait"))
    if stages is not None:
        if address is None:
            raise click.UsageError("--stages needs --ray: the machines that share a model's layers form a cluster")
        replicas = replace(replicas, **parse_stages(stages))
    if wait is not None:
        replicas = replace(replicas, wait_seconds=wait)
    return None if address is None else find_cluster(address), replicas


def _check_no_replicas() -> None:
    """Raise UsageError if the command line has options of replicas: without a cluster they would have no effect."""
    ctx = click.get_current_context()
    for name in ("replicas", "replica_cpus", "replica_gpus", "replica_wait"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} needs --ray: without a cluster a model has one engine, on this machine")


def parse_replicas(text: str, n_cpus: float, n_gpus: float) -> Replicas:
    """Parse a number of replicas or a range such as ``"1:8"``. Raises UsageError."""
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
    """Parse a number of stages, or memory per stage such as ``20GiB``, to fields of ``Replicas``. Raises UsageError."""
    if text.isdecimal() and int(text):
        return {"n_stages": int(text)}
    size = re.fullmatch(r"([0-9.]+) ?(G|M)i?B?", text)
    with contextlib.suppress(ValueError):
        if size and float(size[1]):
            return {"stage_bytes": int(float(size[1]) * (2**30 if size[2] == "G" else 2**20))}
    raise click.UsageError(f"--stages: expected a number, or the memory of each such as 20GiB, not {text!r}")


def find_cluster(address: str) -> Cluster[Model]:
    """Return the Ray cluster at an address, or with ``auto`` the one of this machine. Raises UsageError."""
    from pumice.config import load_config
    from pumice.registry import load_registry

    if address != "auto" and ":" not in address:
        raise click.UsageError(
            f"--ray: {address!r} is not an address such as 10.0.0.1:6379; give --ray=auto, or --ray last"
        )
    cluster = load_registry(load_config()).clusters.find("ray")("" if address == "auto" else address)
    return cast("Cluster[Model]", cluster)
