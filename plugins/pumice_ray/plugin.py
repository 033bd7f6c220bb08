"""Plugin hooks; Ray is imported when a cluster is used."""

from collections.abc import Callable

from pumice.plugin import hookimpl


@hookimpl
def pumice_register_clusters(register: Callable[[str, str], None]) -> None:
    register("ray", "pumice_ray.cluster:RayCluster")


@hookimpl
def pumice_register_backends(register: Callable[[str, str], None]) -> None:
    register("stages", "pumice_ray.stages:StagesBackend")
