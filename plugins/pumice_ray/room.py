"""Room in the cluster: who waits for it is told, and may give up, since Ray waits for ever, and says nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from pumice.plugin import PumiceError

logger = logging.getLogger("pumice")

Bundle = Mapping[str, float]
"""What is asked for of one machine, by the names of Ray's resources: CPU, GPU, memory in bytes."""


def find_room(bundles: Sequence[Bundle], seconds: float = math.inf) -> None:
    """Warn in one line where the cluster has no room for all of these, or none that is free.

    Raises PumiceError where there is none after so many seconds; if they are limited, they are waited for.
    """
    import ray

    if lacking := _lacking(bundles):
        logger.warning("%s; waiting for it", lacking)
    if math.isinf(seconds) or not bundles[0]:
        return
    asked = ray.util.placement_group([dict(each) for each in bundles])  # so that a cluster that grows knows of it
    try:
        if not asked.wait(seconds):
            raise PumiceError(f"{_lacking(bundles) or 'no room in the cluster'}; given up after {seconds:g} seconds")
    finally:
        ray.util.remove_placement_group(asked)


def _lacking(bundles: Sequence[Bundle]) -> str:
    """What is asked for and what there is, if that is too little."""
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    asked = f"asked for {len(bundles)} x {_words(bundles[0])}"
    if not fits(bundles, machines):
        has = "; ".join(_words({name: machine.get(name, 0) for name in bundles[0]}) for machine in machines)
        return f"no room in the cluster: {asked}, its machines have {has}"
    free = ray.available_resources()
    if not fits([{name: n * len(bundles) for name, n in bundles[0].items()}], [free]):
        has = _words({name: free.get(name, 0) for name in bundles[0]})
        return f"no room in the cluster for now: {asked}, free are {has}"
    return ""


def fits(bundles: Sequence[Bundle], machines: Sequence[Bundle]) -> bool:
    """Whether each bundle finds a machine."""
    left = [dict(machine) for machine in machines]
    for bundle in bundles:
        found = next((each for each in left if all(each.get(name, 0) >= n for name, n in bundle.items())), None)
        if found is None:
            return False
        for name, n in bundle.items():
            found[name] = found.get(name, 0) - n
    return True


def _words(bundle: Bundle) -> str:
    """``2 CPU, 1 GPU, 20.0 GiB``."""
    counted = [f"{n:g} {name}" for name, n in bundle.items() if name != "memory"]
    memory = [f"{bundle['memory'] / 2**30:.1f} GiB"] if "memory" in bundle else []
    return ", ".join(counted + memory) or "nothing"
