"""Models as deployments of Ray Serve, and the HTTP application in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import yaml
from ray import serve
from ray.serve.config import RequestRouterConfig
from starlette.applications import Starlette

import pumice
from pumice.cli.cluster import parse_replicas, parse_stages
from pumice.config import load_config
from pumice.plugin import Replicas
from pumice_ray.replica import EngineReplica
from pumice_ray.room import find_room
from pumice_ray.router import PrefixRouter
from pumice_ray.serve_link import ServeLink
from pumice_ray.stages import bundles, staged
from pumice_server.application import make_application
from pumice_server.choice import name_of
from pumice_server.entry import Spec
from pumice_server.keys import Keys
from pumice_server.models import Models
from pumice_server.settings import Settings

MODEL = "model"  # name of the deployment of a model
PREFIX = "pumice-"  # of the names of applications of Serve

_QUEUE = 4  # requests in a replica's hand, for each sequence that it computes; others wait at the ingress
_LISTENERS = 100  # places beside those, for who listens to the others: one of each ingress
_HEALTH_SECONDS = 10.0  # between two questions for a replica's health
_DRAIN_SECONDS = 600.0  # that a replica has to end its requests, where there are to be fewer or others
_INGRESS_REQUESTS = 1000  # at once, of one ingress
_QUIET = {"log_level": "ERROR"}
_REQUESTS = {"log_level": "INFO", "enable_access_log": False}  # a line of each request, with its id


def replicas_of(spec: Spec, replicas: Replicas, by_prefix: bool = True) -> Any:
    """The application of Serve that is a model's replicas: as many as their queues need, each with its own devices."""
    config = load_config({**spec.options.get("config", {}), **_settings(spec)})
    router = RequestRouterConfig(
        request_router_class=PrefixRouter,
        request_router_kwargs={
            "n_parallel": config.n_parallel,
            "most": _QUEUE * config.n_parallel,
            "by_prefix": by_prefix,
        },
    )
    scaling = {
        "min_replicas": replicas.least,
        "max_replicas": replicas.most,
        "target_ongoing_requests": config.n_parallel + 1,  # the last is who listens to the others
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
    return made.bind(spec.path, options, spec.names[0])


def load_replicas(spec: Spec, replicas: Replicas, deliver: Callable[..., object]) -> pumice.LinkedModel:
    """A model on replicas of its own, which end with it. Raises what loading raises."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"

    def connect(receive: Callable[..., None], died: Callable[[Exception], None]) -> ServeLink:
        serve.start(http_options={"location": "NoServer"}, logging_config=_QUIET)
        try:
            handle = serve.run(replicas_of(spec, replicas), name=name, route_prefix=None, logging_config=_QUIET)
        except RuntimeError as error:
            told = str(error)
            with contextlib.suppress(Exception):
                told = str(serve.status().applications[name].deployments[MODEL].message)
            serve.delete(name, _blocking=False)
            raise _explain(told) from None
        return ServeLink(handle, receive, partial(serve.delete, name))

    return pumice.load_linked(spec.path, connect, deliver=deliver, **spec.options)


def app(arguments: Mapping[str, str]) -> Any:
    """For ``serve run pumice_ray:app model=... replicas=1:4``: the ingress, and a model's replicas behind it.

    Further arguments: name, replica_cpus, replica_gpus, replica_wait, stages, ingresses, ingress_cpus, api_key, and
    those of ``pumice.load``, as YAML. Raises PumiceError where the cluster has no room after ``replica_wait`` seconds.
    """
    given = dict(arguments)
    path = given.pop("model", None) or str(pumice.demo_model_path())
    room = parse_replicas(
        given.pop("replicas", "1"), _number(given, "replica_cpus", 1), _number(given, "replica_gpus", 0)
    )
    wait = _number(given, "replica_wait", math.inf)
    room = replace(room, **parse_stages(given.pop("stages", "1")), wait_seconds=wait)
    names = [given.pop("name", None) or name_of(path)]
    keys = Keys([given.pop("api_key")] if "api_key" in given else [])
    n_ingresses, ingress_cpus = int(_number(given, "ingresses", 1)), _number(given, "ingress_cpus", 1)
    options = {name: yaml.safe_load(value) for name, value in given.items()}
    spec = Spec(names, path, options)
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
    """An argument, taken out. Raises PumiceError for what is no number."""
    given = arguments.pop(name, default)
    try:
        return float(given)
    except ValueError:
        raise pumice.PumiceError(f"{name}: expected a number, not {given!r}") from None


def _make_ingress(spec: Spec, settings: Settings) -> Starlette:
    """The application of ``pumice serve``, in a replica of the ingress."""
    handle = serve.get_deployment_handle(MODEL, serve.get_replica_context().app_name)

    def load(spec: Spec, _: object, deliver: Callable[..., object]) -> pumice.LinkedModel:
        def connect(receive: Callable[..., None], died: Callable[[Exception], None]) -> ServeLink:
            return ServeLink(handle, receive, lambda: None)

        return pumice.load_linked(spec.path, connect, deliver=deliver, **spec.options)

    models = Models([spec], load, settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        models.begin(models.entries[0])
        watching = asyncio.create_task(models.watch())
        try:
            yield
        finally:
            watching.cancel()
            await models.close()

    return make_application(models, lifespan)


def _settings(spec: Spec) -> dict[str, Any]:
    return {
        name: value for name, value in spec.options.items() if name not in ("config", "plugins") and value is not None
    }


def _explain(told: str) -> pumice.PumiceError:
    """Of a traceback in a message the last error of Pumice's."""
    found = re.findall(r"pumice\.errors\.\w+: (.+)", told)
    return pumice.EngineError(found[-1].strip() if found else " ".join(told.split())[-300:])
