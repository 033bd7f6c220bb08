"""Models as deployments of Ray Serve, and the HTTP ingress in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import ray
import yaml
from ray import serve
from ray.serve.config import RequestRouterConfig
from starlette.applications import Starlette

import pumice
from pumice.api import load_linked
from pumice.cli.cluster import parse_replicas, parse_stages
from pumice.config import load_config
from pumice.plugin.unstable import ModelSpec, Replicas
from pumice_ray.replica import EngineReplica
from pumice_ray.room import find_room
from pumice_ray.router import PrefixRouter
from pumice_ray.serve_link import ServeLink
from pumice_ray.stages import bundles, staged
from pumice_server.application import make_application
from pumice_server.command.choice import name_of
from pumice_server.keys import APIKeys
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings

MODEL = "model"  # name of a model's deployment
PREFIX = "pumice-"  # prefix of the names of Serve applications

_QUEUE = 4  # requests held by a replica per sequence that it computes; others wait at the ingress
_LISTENERS = 100  # additional calls for event streams, one per ingress
_HEALTH_SECONDS = 10.0  # interval of health checks
_DRAIN_SECONDS = 600.0  # time to finish requests when a replica is removed or replaced
_INGRESS_REQUESTS = 1000  # concurrent requests per ingress
_QUIET = {"log_level": "ERROR"}
_REQUESTS = {"log_level": "INFO", "enable_access_log": False}  # one line per request, with its id


def replicas_of(spec: ModelSpec, replicas: Replicas, owner: Any = None) -> Any:
    """Return the Serve application with a model's replicas: autoscaled by queue length, each with its own devices.

    It ends with the placement group ``owner``, if there is one.
    """
    config = load_config({**spec.options.get("config", {}), **_settings(spec)})
    router = RequestRouterConfig(
        request_router_class=PrefixRouter,
        request_router_kwargs={"n_parallel": config.n_parallel, "most": _QUEUE * config.n_parallel},
    )
    scaling = {
        "min_replicas": replicas.least,
        "max_replicas": replicas.most,
        "target_ongoing_requests": config.n_parallel + 1,  # plus the event stream
    }
    options, replicas = staged(spec.path, spec.options, replicas)
    find_room(bundles(replicas) * replicas.least, replicas.wait_seconds)
    room: dict[str, Any] = {"ray_actor_options": {"num_cpus": replicas.n_cpus, "num_gpus": replicas.n_gpus}}
    if replicas.staged:
        room = {"ray_actor_options": {"num_cpus": 0}, "placement_group_bundles": bundles(replicas)}
        room["placement_group_strategy"] = "SPREAD"
    made = serve.deployment(
        EngineReplica,
        name=MODEL,
        autoscaling_config=scaling,
        max_ongoing_requests=_QUEUE * config.n_parallel + _LISTENERS,
        max_queued_requests=config.max_queue,
        request_router_config=router,
        health_check_period_s=_HEALTH_SECONDS,
        graceful_shutdown_timeout_s=_DRAIN_SECONDS,
        logging_config=_REQUESTS,
        **room,
    )
    return made.bind(spec.path, options, spec.names[0], owner)


def load_replicas(spec: ModelSpec, replicas: Replicas, deliver: Callable[..., object]) -> pumice.Model:
    """Load a model on replicas of its own, which end with it or with this process. Raises the errors of loading."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"

    def connect(receive: Callable[..., None], died: Callable[[Exception], None]) -> ServeLink:
        serve.start(proxy_location="Disabled", logging_config=_QUIET)
        try:
            owner = ray.util.placement_group([{"memory": 1}])  # Ray removes it when this process ends, even if killed
            application = replicas_of(spec, replicas, owner=owner)
            handle = serve.run(application, name=name, route_prefix=None, logging_config=_QUIET)
        except RuntimeError as error:
            message = str(error)
            with contextlib.suppress(Exception):
                message = str(serve.status().applications[name].deployments[MODEL].message)
            serve.delete(name, _blocking=False)
            raise _explain(message) from None

        def end() -> None:
            serve.delete(name)
            ray.util.remove_placement_group(owner)

        return ServeLink(handle, receive, end)

    return load_linked(spec.path, connect, deliver=deliver, **spec.options)


def app(arguments: Mapping[str, str]) -> Any:
    """Build ``serve run pumice_ray:app model=... replicas=1:4``: the ingress, and a model's replicas behind it.

    Args:
        arguments: model, replicas, name, replica_cpus, replica_gpus, replica_wait, stages, ingresses, ingress_cpus,
            api_key, and those of ``pumice.load``, as YAML.

    Raises:
        PumiceError: if the cluster has no room after ``replica_wait`` seconds.
    """
    remaining = dict(arguments)
    path = remaining.pop("model", None) or str(pumice.demo_model_path())
    room = parse_replicas(
        remaining.pop("replicas", "1"), _number(remaining, "replica_cpus", 1), _number(remaining, "replica_gpus", 0)
    )
    wait = _number(remaining, "replica_wait", math.inf)
    room = replace(room, **parse_stages(remaining.pop("stages", "1")), wait_seconds=wait)
    names = [remaining.pop("name", None) or name_of(path)]
    keys = APIKeys([remaining.pop("api_key")] if "api_key" in remaining else [])
    n_ingresses, ingress_cpus = int(_number(remaining, "ingresses", 1)), _number(remaining, "ingress_cpus", 1)
    options = {name: yaml.safe_load(value) for name, value in remaining.items()}
    spec = ModelSpec(names, path, options)
    settings = Settings(host="0.0.0.0", keys=keys)

    def make() -> Starlette:
        return _make_ingress(spec, settings)

    ingress = serve.deployment(
        serve.ingress(make)(),
        name="ingress",
        num_replicas=n_ingresses,
        ray_actor_options={"num_cpus": ingress_cpus},
        max_ongoing_requests=_INGRESS_REQUESTS,
        logging_config=_QUIET,
    )
    return ingress.bind(replicas_of(spec, room))


def _number(arguments: dict[str, str], name: str, default: float) -> float:
    """Remove a number from the arguments and return it. Raises PumiceError for other values."""
    value = arguments.pop(name, default)
    try:
        return float(value)
    except ValueError:
        raise pumice.PumiceError(f"{name}: expected a number, not {value!r}") from None


def _make_ingress(spec: ModelSpec, settings: Settings) -> Starlette:
    """Return the application of ``pumice serve``, for a replica of the ingress."""
    handle = serve.get_deployment_handle(MODEL, serve.get_replica_context().app_name)

    def load(spec: ModelSpec, _: object, deliver: Callable[..., object]) -> pumice.Model:
        def connect(receive: Callable[..., None], died: Callable[[Exception], None]) -> ServeLink:
            return ServeLink(handle, receive, lambda: None)

        return load_linked(spec.path, connect, deliver=deliver, **spec.options)

    models = Models([spec], load, settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        models.load(models.served_models[0])
        watching = asyncio.create_task(models.watch())
        try:
            yield
        finally:
            watching.cancel()
            await models.close()

    return make_application(models, lifespan)


def _settings(spec: ModelSpec) -> dict[str, Any]:
    return {
        name: value for name, value in spec.options.items() if name not in ("config", "plugins") and value is not None
    }


def _explain(message: str) -> pumice.PumiceError:
    """Return the last Pumice error of the traceback in a message."""
    errors = re.findall(r"pumice\.errors\.\w+: (.+)", message)
    return pumice.EngineError(errors[-1].strip() if errors else " ".join(message.split())[-300:])
