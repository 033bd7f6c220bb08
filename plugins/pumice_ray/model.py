"""A model whose engine is an actor."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pumice
from pumice.cli.cluster import parse_stages
from pumice.plugin import Replicas
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
) -> pumice.LinkedModel:
    """Load a model on a machine of the Ray cluster that has so many CPUs and GPUs free; waits until one has.

    ``path`` and the other arguments are those of ``pumice.load_process``. A file has to be there on every machine, and
    on this one, for its tokenizer; names of the hub are fetched where they are used. Raises as ``pumice.load_process``.

    ``stages``: machines that share its layers, each with those CPUs and GPUs, or the memory of each, as "20GiB": then
    there are as many as it takes. A stage that dies ends the model. ``wait_seconds``: after which PumiceError is
    raised where no machine has room.
    """
    name = path or str(pumice.demo_model_path())
    room = Replicas(n_cpus=num_cpus, n_gpus=num_gpus, **parse_stages(str(stages)), wait_seconds=wait_seconds)
    connect = partial(RayLink, name, arguments, room)
    return pumice.load_linked(name, connect, deliver=deliver, **arguments)
