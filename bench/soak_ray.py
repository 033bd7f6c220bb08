"""Run `pumice serve --ray` for hours on machines that fail: nodes of Ray on this one, one of which is killed regularly.

    python bench/soak_ray.py [--seconds 7200] [--clients 4] [--pause 0] [--kill-every 180] [MODEL]

Two replicas run on three nodes of one processor each. Clients stream, cancel and compare texts; a node is killed
without notice and another one joins. Writes a line for each kill to standard error, and JSON at the end; the exit
status is that of soak_http.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from serve_process import serving
from soak_http import Plan, Tally, options, report, soak

NAME = "demo"
KINDS = ("greedy", "greedy", "stream", "stream", "cancel", "schema", "embed", "tokenize", "metrics", "nonsense")
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
HEALTH = {"health_check_period_ms": 2000, "health_check_failure_threshold": 10}  # a machine is given up after 20 s
N_NODES = 3  # beside the head, which stays
GRACE = 120.0  # seconds after a kill: the machine is given up, and another one imports Pumice and loads the model


def server(address: str, model: Path) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Run `pumice serve --ray`, and yield it with its address."""
    arguments = [str(model), "--alias", NAME, "--ray", address, "--replicas", "2:2", "--replica-cpus", "1"]
    arguments += ["-np", "4", "-c", "512", "-t", "1", "--max-queue", "1000", "--set", "cpu.batch_invariant=true"]
    return serving(arguments)


def main() -> int:
    parser = options(__doc__.splitlines()[0], 4, 180.0)
    arguments, tally = parser.parse_args(), Tally()
    arguments.backend = "cpu"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "_system_config": HEALTH})
    nodes = [cluster.add_node(**NODE) for _ in range(N_NODES)]

    def kill_node() -> bool:
        victim = nodes.pop(random.randrange(len(nodes)))
        cluster.remove_node(victim, allow_graceful=False)
        while len(nodes) < N_NODES:
            try:
                nodes.append(cluster.add_node(**NODE))
            except Exception as error:  # Ray raises it bare where a node has not joined in 30 s, as on a busy machine
                print(f"another node: {error}", file=sys.stderr)
        return True

    try:
        with server(cluster.address, arguments.model) as (process, url):
            plan = Plan([NAME], KINDS, arguments.pause, GRACE, kill_node)
            samples = soak(url, process.pid, arguments, tally, plan)
    finally:
        cluster.shutdown()
    return report(arguments, tally, samples)


if __name__ == "__main__":
    sys.exit(main())
