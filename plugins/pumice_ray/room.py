"""Reservation of resources in the cluster, with a warning and a timeout; Ray would wait silently for ever."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from pumice.plugin import PumiceError

logger = logging.getLogger("pumice")

Bundle = Mapping[str, float]
"""Resources requested of one machine, by Ray's names: CPU, GPU, memory in bytes."""


def find_room(bundles: Sequence[Bundle], seconds: float = math.inf) -> None:
    """Warn in one line if the cluster lacks these resources, or has none of them free.

    Raises PumiceError if they are not available after ``seconds``; a finite time is spent waiting for them.
    """
    import ray

    if lacking := _lacking(bundles):
        logger.warning("%s; waiting for it", lacking)
    if math.isinf(seconds) or not bundles[0]:
        return
    asked = ray.util.placement_group(
        [dict(bundle) for bundle in bundles]
    )  # tells an autoscaling cluster about the demand
    try:
        if not asked.wait(seconds):
            raise PumiceError(f"{_lacking(bundles) or 'no room in the cluster'}; gave up after {seconds:g} seconds")
    finally:
        ray.util.remove_placement_group(asked)


def _lacking(bundles: Sequence[Bundle]) -> str:
    """Return a text that compares the requested with the available resources if they do not suffice, else ""."""
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    asked = f"requested {len(bundles)} x {_words(bundles[0])}"
    if not fits(bundles, machines):
        has = "; ".join(_words({name: machine.get(name, 0) for name in bundles[0]}) for machine in machines)
        return f"no room in the cluster: {asked}, its machines have {has}"
    free = ray.available_resources()
    if not fits([{name: n * len(bundles) for name, n in bundles[0].items()}], [free]):
        has = _words({name: free.get(name, 0) for name in bundles[0]})
        return f"no free resources in the cluster: {asked}, free: {has}"
    return ""


def fits(bundles: Sequence[Bundle], machines: Sequence[Bundle]) -> bool:
    """Return True if each bundle fits on a machine."""
    left = [dict(machine) for machine in machines]
    for bundle in bundles:
        room = next(
            (candidate for candidate in left if all(candidate.get(name, 0) >= n for name, n in bundle.items())), None
        )
        if room is None:
            return False
        for name, n in bundle.items():
            room[name] = room.get(name, 0) - n
    return True


def _words(bundle: Bundle) -> str:
    """Format a bundle: ``2 CPU, 1 GPU, 20.0 GiB``."""
    counted = [f"{n:g} {name}" for name, n in bundle.items() if name != "memory"]
    memory = [f"{bundle['memory'] / 2**30:.1f} GiB"] if "memory" in bundle else []
    return ", ".join(counted + memory) or "nothing"
