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
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soak_http import Plan, Tally, options, report, soak

NAME = "demo"
KINDS = ("greedy", "greedy", "stream", "stream", "cancel", "schema", "embed", "tokenize", "metrics", "nonsense")
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
HEALTH = {"health_check_period_ms": 2000, "health_check_failure_threshold": 10}  # a machine is given up after 20 s
N_NODES = 3  # beside the head, which stays
GRACE = 120.0  # seconds after a kill: the machine is given up, and another one imports Pumice and loads the model


@contextlib.contextmanager
def server(address: str, model: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `pumice serve --ray`, and yield it with its address."""
    command = [sys.executable, "-m", "pumice", "serve", str(model), "--alias", NAME, "--ray", address, "--port", "0"]
    command += ["--replicas", "2:2", "--replica-cpus", "1", "-np", "4", "-c", "512", "-t", "1", "--max-queue", "1000"]
    command += ["--set", "cpu.batch_invariant=true"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        lines = []
        for line in process.stderr:
            lines.append(line)
            if match := re.match(r"listening on (\S+)", line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield process, match[1]
                return
        raise SystemExit(f"error: the server did not start: {''.join(lines[-5:])}")
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


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
        nodes.append(cluster.add_node(**NODE))
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
