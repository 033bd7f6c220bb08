"""The hook; Ray is imported when a cluster is used."""

from collections.abc import Callable

from pumice.plugin import hookimpl


@hookimpl
def pumice_register_clusters(register: Callable[[str, str], None]) -> None:
    register("ray", "pumice_ray.cluster:RayCluster")
