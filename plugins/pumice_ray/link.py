"""The connection to an engine in an actor: commands are calls, events return joined, death is detected."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import pumice
from pumice.engine.messages import Command, Event, Facts
from pumice.plugin.unstable import Replicas
from pumice.process.codec import decode_events, decode_facts, encode_command
from pumice_ray.actor import NAME, EngineActor
from pumice_ray.errors import explain
from pumice_ray.room import find_room
from pumice_ray.stages import bundles, staged

_CLOSE_SECONDS = 30.0  # grace period of the engine before it is killed
_MAX_CALLS = 10_000  # concurrent calls of an actor


class RayLink:
    """An engine in an actor of its own. ``receive`` is called in a thread with the events of one or more steps.

    ``died`` is called once if the actor ends without ``close``; if it was still loading, ``loaded`` fails, too.
    """

    keeps_media = True

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        room: Replicas,
        receive: Callable[[list[Event]], None],
        died: Callable[[Exception], None],
    ) -> None:
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # cause of the end
        self._receive = receive
        self._died = died
        self._closing = False
        self._group: Any = None
        options, room = staged(name, options, room)
        find_room(bundles(room), room.wait_seconds)
        where: dict[str, Any] = {"num_cpus": room.n_cpus, "num_gpus": room.n_gpus}
        if room.staged:
            self._group = ray.util.placement_group(bundles(room), strategy="SPREAD")
            first = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
            where = {"num_cpus": 0, "scheduling_strategy": first}
        make = ray.remote(EngineActor).options(
            name=f"{NAME}{uuid.uuid4().hex}", max_restarts=0, max_concurrency=_MAX_CALLS, **where
        )
        self.actor = make.remote()
        loading = self.actor.load.remote(name, dict(options))
        threading.Thread(target=self._listen, args=[loading], name="pumice-ray-link", daemon=True).start()

    def send(self, command: Command) -> None:
        """Send a command without waiting. Raises EngineDiedError, ModelClosedError or RequestError."""
        if self._closing:
            raise pumice.ModelClosedError("the model is closed")
        if self.error:
            raise self.error
        self.actor.send.remote(encode_command(command))

    def close(self) -> None:
        """Cancel all requests, release the engine's memory, and wait for its end."""
        self._closing = True
        with contextlib.suppress(ray.exceptions.RayError, RuntimeError):  # the actor is dead, or Ray is shut down
            ray.get(self.actor.close.remote(), timeout=_CLOSE_SECONDS)
        with contextlib.suppress(Exception):
            ray.kill(self.actor)
            if self._group is not None:
                ray.util.remove_placement_group(self._group)

    def _listen(self, loading: Any) -> None:
        try:
            self.loaded.set_result(decode_facts(ray.get(loading)))
            while (parts := ray.get(self.actor.receive.remote())) is not None:
                for data in parts:
                    self._receive(list(decode_events(data)))
            self.error = pumice.ModelClosedError("the model is closed")
        except Exception as error:
            self.error = pumice.ModelClosedError("the model is closed") if self._closing else explain(error)
        if not self.loaded.done():
            self.loaded.set_exception(self.error)
        self._died(self.error)
