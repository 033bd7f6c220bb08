"""Room in the cluster: who waits for it is told, since Ray itself waits for ever, and says nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

logger = logging.getLogger("pumice")

Bundle = Mapping[str, float]
"""What is asked for of one machine, by the names of Ray's resources: CPU, GPU, memory in bytes."""


def tell_of_room(bundles: Sequence[Bundle]) -> None:
    """Warn in one line where the cluster has no room for all of these, or none that is free."""
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    asked = f"asked for {len(bundles)} x {_words(bundles[0])}"
    if not fits(bundles, machines):
        has = "; ".join(_words({name: machine.get(name, 0) for name in bundles[0]}) for machine in machines)
        logger.warning("no room in the cluster: %s, its machines have %s; waiting for others", asked, has)
        return
    free = ray.available_resources()
    if not fits([{name: n * len(bundles) for name, n in bundles[0].items()}], [free]):
        has = _words({name: free.get(name, 0) for name in bundles[0]})
        logger.warning("no room in the cluster for now: %s, free are %s; waiting for it", asked, has)


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
