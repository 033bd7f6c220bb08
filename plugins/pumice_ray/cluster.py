"""What commands do with ``--ray``."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pumice.plugin import Cluster, PumiceError, Replicas
from pumice.running import Running, processes

_REACH_SECONDS = 10.0  # for a cluster to take a connection
_ASK_SECONDS = 10.0  # for actors to say what they have loaded

NAMESPACE = "pumice"  # of actors with names


class RayCluster(Cluster):
    """A cluster of Ray; ``address`` as ``ray.init`` takes it."""

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        ray = _ray()
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": NAMESPACE}
        already = ray.is_initialized()
        if not already:
            _connect(ray, self.address, quiet)
        try:
            yield
        finally:
            if not already:
                ray.shutdown()

    def answer(self, spec: Any, rows: Iterable[Any], n_in_flight: int, replicas: Replicas) -> Iterator[dict[str, Any]]:
        from pumice_ray.data import answer_rows

        return answer_rows(spec, rows, n_in_flight, replicas)

    def load(self, spec: Any, replicas: Replicas, deliver: Callable[..., object]) -> Any:
        from pumice_ray.deployment import load_replicas

        return load_replicas(spec, replicas, deliver)

    def running(self) -> list[Running]:
        import ray

        from pumice_ray.actor import NAME
        from pumice_ray.stage_actor import NAME as STAGE

        actors = []
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["name"].startswith((NAME, STAGE)):
                with contextlib.suppress(ValueError):  # it ended meanwhile
                    actors.append(ray.get_actor(**each))
        told = described([actor.describe.remote() for actor in actors]) + _served()
        found = [Running(**fields) for fields in told] + _workers()
        return sorted(found, key=lambda running: running.since)


def described(asked: list[Any]) -> list[Any]:
    """What actors and machines say of themselves; those that say nothing are left out."""
    import ray

    found: list[Any] = []
    answers, _ = ray.wait(asked, num_returns=len(asked), timeout=_ASK_SECONDS) if asked else ([], [])
    for answer in answers:
        with contextlib.suppress(ray.exceptions.RayError):  # it ended meanwhile
            found.append(ray.get(answer))
    return found


def _served() -> list[dict[str, Any]]:
    """The replicas of models that Serve runs."""
    from ray import serve

    from pumice_ray.deployment import MODEL

    found: list[dict[str, Any]] = []
    for name, application in serve.status().applications.items():
        if MODEL in application.deployments:
            handle = serve.get_deployment_handle(MODEL, name)
            with contextlib.suppress(Exception):  # it is being started or ended
                found += handle.broadcast("describe").results(timeout_s=_ASK_SECONDS)
    return found


def _workers() -> list[Running]:
    """The engines of batches. Ray Data gives its actors no names: each machine says what its processes have loaded."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    ask = ray.remote(_workers_here)
    machines = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = [ask.options(num_cpus=0, scheduling_strategy=On(each, soft=False)).remote() for each in machines]
    running = [Running(**fields) for told in described(asked) for fields in told]
    found = {(each.address, each.pid): each for each in running}
    return list(found.values())


def _workers_here() -> list[dict[str, Any]]:
    """The fields of those of this machine."""
    from pumice_ray.actor import WORKER, own_address

    here = own_address()
    return [{**dataclasses.asdict(each), "address": here} for each in processes() if each.command == WORKER]


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise PumiceError("Ray is not installed: pip install 'pumice[ray]'") from None
    return ray


def _connect(ray: Any, address: str, options: dict[str, Any]) -> None:
    """To the cluster at an address; without one to that of this machine, or to a new one where there is none."""
    named = address or os.environ.get("RAY_ADDRESS", "")
    if named:
        _reach(named)
    try:
        if named or _is_up(_noted()):
            ray.init(address=named or "auto", **options)
        else:
            ray.init(address="local", include_dashboard=False, **options)
    except ConnectionError as error:
        raise PumiceError(f"there is no Ray cluster at {named or _noted()}: {str(error).splitlines()[0]}") from None


def _noted() -> str:
    """Where Ray would look; it waits for minutes where that cluster has ended without taking its note away."""
    try:
        return (Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _is_up(address: str) -> bool:
    try:
        _reach(address)
    except PumiceError:
        return False
    return True


def _reach(address: str) -> None:
    """Ray itself waits for minutes where nobody answers. Raises PumiceError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), _REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise PumiceError(f"there is no Ray cluster at {address}: {error}") from None
