"""The way to an engine in an actor: commands are calls, events come back joined, the actor's death is seen."""

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
from pumice.plugin import Replicas
from pumice.process.codec import decode_events, decode_facts, encode_command
from pumice_ray.actor import NAME, EngineActor
from pumice_ray.errors import explain
from pumice_ray.room import find_room
from pumice_ray.stages import bundles, staged

_CLOSE_SECONDS = 30.0  # for the engine to end; then it is killed
_MAX_CALLS = 10_000  # of an actor at once


class RayLink:
    """An engine in an actor of its own. ``receive`` gets its events in a thread, those of several steps at a time.

    ``died`` is called once if it ends and nobody closed it; ``loaded`` then fails too, if it was not there yet.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        room: Replicas,
        receive: Callable[[list[Event]], None],
        died: Callable[[Exception], None],
    ) -> None:
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # why it ended
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
        """Never waits. Raises EngineDiedError, ModelClosedError, or RequestError for what cannot be sent."""
        if self._closing:
            raise pumice.ModelClosedError("the model is closed")
        if self.error:
            raise self.error
        self.actor.send.remote(encode_command(command))

    def close(self) -> None:
        """End it: what it has in hand ends as cancelled, and its memory is given back. Waits for that."""
        self._closing = True
        with contextlib.suppress(ray.exceptions.RayError, RuntimeError):  # dead already, or Ray is shut down
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
