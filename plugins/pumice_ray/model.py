"""Loading of a model whose engine is an actor."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pumice
from pumice.api import load_linked
from pumice.cli.cluster import parse_stages
from pumice.plugin.unstable import Replicas
from pumice_ray.link import RayLink


def load(
    path: str | None = None,
    *,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    stages: int | str = 1,
    wait_seconds: float = math.inf,
    deliver: Callable[..., object] | None = None,
    **arguments: Any,
) -> pumice.Model:
    """Load a model on a machine of the Ray cluster; wait until one has the requested CPUs and GPUs free.

    Args:
        path: as for ``pumice.load_process``. A file must exist on that machine, and on this one for its tokenizer;
            names of the hub are downloaded where they are used.
        num_cpus: CPUs to reserve per stage.
        num_gpus: GPUs to reserve per stage.
        stages: number of machines that share the layers, each with those CPUs and GPUs; or the memory of each, such as
            "20GiB", which determines their number. If a stage dies, the model ends.
        wait_seconds: timeout of the reservation.
        arguments: further arguments of ``pumice.load_process``.

    Raises:
        PumiceError: if no machine has room after ``wait_seconds``; otherwise as ``pumice.load_process``.
    """
    name = path or str(pumice.demo_model_path())
    room = Replicas(n_cpus=num_cpus, n_gpus=num_gpus, **parse_stages(str(stages)), wait_seconds=wait_seconds)
    connect = partial(RayLink, name, arguments, room)
    return load_linked(name, connect, deliver=deliver, **arguments)
