"""A cluster of Ray on this machine, whose nodes are processes; tests are skipped where Ray is not installed."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gguf_files import tiny_llama

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 6}  # a machine is given up after 6 s
NODE = {"object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a small model with random weights."""
    return str(tiny_llama(tmp_path_factory.mktemp("ray") / "tiny.gguf"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head with one CPU, to which this process is connected; ``cluster.add_node(num_cpus=1)`` adds machines."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": HEALTH, **NODE})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", namespace="pumice")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def node(cluster: Any) -> Iterator[Callable[..., Any]]:
    """``node()`` adds a machine with one CPU, until the test ends."""
    added = []

    def add(**options: Any) -> Any:
        added.append(cluster.add_node(**{"num_cpus": 1, **NODE, **options}))
        return added[-1]

    yield add
    for each in added:
        if each in cluster.worker_nodes:
            cluster.remove_node(each, allow_graceful=False)
