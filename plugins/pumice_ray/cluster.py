"""The Ray cluster behind the option ``--ray``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pumice
from pumice.plugin import PumiceError
from pumice.plugin.unstable import BatchRow, Cluster, ModelSpec, Replicas, install_command
from pumice.process_list import RunningModel, processes

_REACH_SECONDS = 10.0  # timeout of a connection to the cluster
_ASK_SECONDS = 10.0  # timeout of actors' replies
_SETTINGS = b"\4"  # type of the first frame of each side (RFC 9113, 3.4)
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)

NAMESPACE = "pumice"  # namespace of named actors


class RayCluster(Cluster[pumice.Model]):
    """A Ray cluster; ``address`` is in the format of ``ray.init``."""

    @contextlib.contextmanager
    def connected(self, *, start: bool = True) -> Iterator[None]:
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            yield
            return
        _check_installed()
        named = _named(self.address, start)
        import ray  # takes seconds, so only behind a good address

        _connect(ray, named, {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": NAMESPACE})
        try:
            yield
        finally:
            ray.shutdown()

    def answer(
        self, spec: ModelSpec, rows: Iterable[BatchRow], n_in_flight: int, replicas: Replicas
    ) -> Iterator[dict[str, Any]]:
        from pumice_ray.data import answer_rows

        return answer_rows(spec, rows, n_in_flight, replicas)

    def load(self, spec: ModelSpec, replicas: Replicas, deliver: Callable[..., object]) -> pumice.Model:
        from pumice_ray.deployment import load_replicas

        return load_replicas(spec, replicas, deliver)

    def running(self) -> list[RunningModel]:
        import ray

        from pumice_ray.actor import NAME
        from pumice_ray.stage_actor import NAME as STAGE

        actors = []
        for identifier in ray.util.list_named_actors(all_namespaces=True):
            if identifier["name"].startswith((NAME, STAGE)):
                with contextlib.suppress(ValueError):  # the actor has ended meanwhile
                    actors.append(ray.get_actor(**identifier))
        fields_of_actors = described([actor.describe.remote() for actor in actors]) + _served()
        entries = [RunningModel(**fields) for fields in fields_of_actors] + _workers()
        return sorted(entries, key=lambda entry: entry.since)


def described(asked: list[Any]) -> list[Any]:
    """Return the replies of actors and machines; those that fail to reply are left out."""
    import ray

    replies: list[Any] = []
    answers, _ = ray.wait(asked, num_returns=len(asked), timeout=_ASK_SECONDS) if asked else ([], [])
    for answer in answers:
        with contextlib.suppress(ray.exceptions.RayError):  # the actor has ended meanwhile
            replies.append(ray.get(answer))
    return replies


def _served() -> list[dict[str, Any]]:
    """Return the fields of the replicas that Ray Serve runs."""
    from ray import serve

    from pumice_ray.deployment import MODEL

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    fields: list[dict[str, Any]] = []
    for name, application in serve.status().applications.items():
        if MODEL in application.deployments:
            handle = serve.get_deployment_handle(MODEL, name)
            with contextlib.suppress(Exception):  # the application is starting or ending
                fields += handle.broadcast("describe").results(timeout_s=_ASK_SECONDS)
    return fields


def _workers() -> list[RunningModel]:
    """Return the engines of batches. Ray Data does not name its actors, so each machine lists its processes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    ask = ray.remote(_workers_here)
    machines = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = [ask.options(num_cpus=0, scheduling_strategy=On(machine, soft=False)).remote() for machine in machines]
    running = [RunningModel(**fields) for fields_of_machine in described(asked) for fields in fields_of_machine]
    by_process = {(process.address, process.pid): process for process in running}
    return list(by_process.values())


def _workers_here() -> list[dict[str, Any]]:
    """Return the fields of the workers on this machine."""
    from pumice_ray.actor import WORKER, own_address

    address = own_address()
    return [{**dataclasses.asdict(process), "address": address} for process in processes() if process.command == WORKER]


def _check_installed() -> None:
    if "ray" not in sys.modules and importlib.util.find_spec("ray") is None:
        raise PumiceError(f"Ray is not installed: {install_command('ray')}")


def _named(address: str, start: bool) -> str:
    """Return the address that ``ray.init`` is given, once a server answers there; empty for a new cluster.

    Without an address it is that of ``RAY_ADDRESS``, else ``auto`` if this machine is in a cluster. Raises PumiceError.
    """
    named = address or os.environ.get("RAY_ADDRESS", "")
    if named and named != "auto":  # Ray's word for this machine's cluster
        _reach(named)
        return named
    if _is_up(_noted()):
        return "auto"
    if start:
        return ""
    raise PumiceError("this machine is in no Ray cluster; run `ray start`, or name an address: --ray=10.0.0.1:6379")


def _connect(ray: Any, named: str, options: dict[str, Any]) -> None:
    """Connect to the cluster at an address, or start one on this machine. Raises PumiceError."""
    if not named:
        _start(ray, options)
        return
    try:
        ray.init(address=named, **options)
    except (ConnectionError, RuntimeError) as error:
        where = _noted() if named == "auto" else named
        if isinstance(error, ConnectionError):
            hint = "" if "RAY_AUTH_MODE" in os.environ else " (set RAY_AUTH_MODE=token if it requires a token)"
            raise PumiceError(f"no Ray cluster at {where}: {str(error).splitlines()[0]}{hint}") from None
        reason = " ".join(str(error).split())  # the cluster has another version of Ray or Python
        raise PumiceError(f"the Ray cluster at {where}: {reason}") from None


def _start(ray: Any, options: dict[str, Any]) -> None:
    """Start a cluster on this machine. Raises PumiceError: Ray raises the base class Exception if it does not start."""
    try:
        ray.init(address="local", include_dashboard=False, **options)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise PumiceError(f"Ray does not start on this machine: {reason}") from error


def _noted() -> str:
    """Return the address that Ray would use; Ray itself waits for minutes if that cluster ended uncleanly."""
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
    """Check that a gRPC server answers at the address, as Ray tries again for minutes. Raises PumiceError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _REACH_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_GREETING)
            if connection.recv(4, socket.MSG_WAITALL)[3:] != _SETTINGS:
                raise PumiceError(f"no Ray cluster at {address}: another server has this port")
    except (OSError, ValueError) as error:
        raise PumiceError(f"no Ray cluster at {address}: {error}") from None
