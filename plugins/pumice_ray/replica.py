"""A replica of a model: an engine in an actor of Ray Serve.

A request is a call that lasts until its completions end. The events of all requests of a client share one stream.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import msgspec
import ray
from ray import serve
from ray.util.placement_group import PlacementGroup

import pumice
from pumice.engine.messages import (
    Add,
    Cancel,
    Close,
    Command,
    Event,
    Failed,
    Finished,
    Inspect,
    Inspected,
    Question,
    Speak,
)
from pumice.local_engine import local_engine
from pumice.process.codec import Loaded, decode_command, encode_events, encode_report
from pumice.process.engine_host import EngineHost
from pumice.process_list import RunningModel
from pumice_ray.actor import own_address, own_devices
from pumice_ray.gauges import Gauges
from pumice_ray.mailbox import Mailbox
from pumice_ray.outbox import Outbox

_LAST_SECONDS = 1.0  # time for a failing replica to report the cause
_OWNER_SECONDS = 5.0  # interval at which a replica looks for its owner
_BEAT_SECONDS = 60.0  # maximum duration of a step; a hanging replica is replaced

logger = logging.getLogger("ray.serve")  # its lines go to the replica's log


class EngineReplica:
    """The deployment class. Serve starts, health-checks, replaces and scales it."""

    def __init__(self, path: str, options: Mapping[str, Any], name: str, owner: PlacementGroup | None = None) -> None:
        """Load the model. Raises the errors of ``pumice.load``."""
        self._model = pumice.load(path, **own_devices(options))
        engine = local_engine(self._model)
        engine.open_media()
        self._running = RunningModel(
            "serve", name, self._model.backends, self._model.memory, self._model.n_ctx, own_address()
        )
        self._name = own_name()
        self._ids = itertools.count(secrets.randbits(62))  # random, so ids of different processes do not collide
        self._outboxes: dict[str, Outbox] = {}  # by name of the client
        self._boxes: dict[int, Mailbox | Outbox] = {}  # by id
        self._names: dict[int, str] = {}  # names of requests by id
        self._gauges = Gauges(name, self._name)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._host = EngineHost(engine, self._deliver)
        threading.Thread(target=self._obey, name="pumice-commands", daemon=True).start()
        if owner is not None:
            threading.Thread(target=_end_with, args=[owner], name="pumice-owner", daemon=True).start()

    async def facts(self) -> bytes:
        return encode_report(Loaded(self._model.facts))

    async def describe(self) -> dict[str, Any]:
        """Return the fields of ``RunningModel`` for ``pumice ps --ray``."""
        return asdict(self._running)

    async def generate(self, command: bytes, asker: str) -> AsyncIterator[str]:
        """Yield this replica's name, then wait until all events of the completions are sent to the client's stream.

        If the caller cancels, the completions end. ``command`` is an ``Add`` or a ``Speak`` whose ids no other process
        uses.
        """
        add = decode_command(command)
        if not isinstance(add, (Add, Speak)):
            raise pumice.RequestError(f"generate expects an Add or Speak message, not {type(add).__name__}")
        ids = add.ids if isinstance(add, Add) else [add.id]
        with self._outbox(asker) as outbox:
            outbox.expect(ids)
            self._boxes |= dict.fromkeys(ids, outbox)
            self._names |= dict.fromkeys(ids, add.request.request_id if isinstance(add, Add) else "")
            try:
                self._commands.put(add)
                yield self._name
                await outbox.sent(ids)
            finally:
                for id in outbox.forget(ids):
                    self._commands.put(Cancel(id))
                for id in ids:
                    del self._boxes[id], self._names[id]

    async def listen(self, replica: str, asker: str) -> AsyncIterator[bytes]:
        """Yield the events of all requests of the client ``asker``, until it has had none for a while.

        Raises EngineDiedError if this is not the replica named: the router no longer knows that one.
        """
        if replica != self._name:
            raise pumice.EngineDiedError("the replica is being replaced")
        with self._outbox(asker) as outbox:
            async for events in outbox.messages():
                for data in encode_events(events):
                    yield data

    async def answer(self, command: bytes) -> bytes:
        """Return the event that answers a ``Question``, whose id this replica assigns."""
        asked = decode_command(command)
        if not isinstance(asked, Question):
            raise pumice.RequestError(f"answer expects a question such as Encode or Score, not {type(asked).__name__}")
        return await self._ask(lambda id: msgspec.structs.replace(asked, id=id))

    async def snapshot(self) -> bytes:
        return await self._ask(Inspect)

    async def check_health(self) -> None:
        """Health check of Serve; raises if the engine hangs or has ended."""
        event = await asyncio.wait_for(self._event(Inspect), _BEAT_SECONDS)
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Inspected):
            self._gauges.set(event.value)

    def __del__(self) -> None:
        if hasattr(self, "_commands"):
            self._commands.put(Close())
            self._model.close()

    @contextmanager
    def _outbox(self, asker: str) -> Iterator[Outbox]:
        """Return the client's outbox, which exists as long as it is used."""
        outbox = self._outboxes.setdefault(asker, Outbox())
        outbox.n_users += 1
        try:
            yield outbox
        finally:
            outbox.n_users -= 1
            if not outbox.n_users:
                del self._outboxes[asker]

    async def _ask(self, command: Callable[[int], Command]) -> bytes:
        """Return the answer to a command, which is built from an id."""
        (data,) = encode_events([await self._event(command)])
        return data

    async def _event(self, command: Callable[[int], Command]) -> Event:
        """Return the answer to a command. If the caller cancels, so does the engine: an image is encoded no further."""
        id, mailbox = next(self._ids), Mailbox(0.0)
        self._boxes[id] = mailbox
        try:
            self._commands.put(command(id))
            (event,) = await mailbox.take() or []
        except asyncio.CancelledError:
            self._commands.put(Cancel(id))
            raise
        finally:
            del self._boxes[id]
        return event

    # --- in other threads

    def _obey(self) -> None:
        while not isinstance(command := self._commands.get(), Close):
            self._host.obey(command)

    def _deliver(self, events: list[Event]) -> None:
        """Deliver the events of a step to the clients."""
        sorted: dict[Mailbox | Outbox, list[Event]] = {}
        for event in events:
            if isinstance(event, Failed) and isinstance(event.error, pumice.EngineDiedError):
                threading.Timer(_LAST_SECONDS, os._exit, [1]).start()  # a stage died: Serve restarts the whole replica
            if isinstance(event, Finished):
                logger.info("request %s: %s, %s", self._names.get(event.id, ""), event.reason, event.timings)
            if box := self._boxes.get(event.id):
                sorted.setdefault(box, []).append(event)
        for box, events_of_box in sorted.items():
            box.put(events_of_box)


def _end_with(owner: PlacementGroup) -> None:
    """Delete this replica's application once Ray has removed a placement group, as it does when its process ends.

    Serve's own actors are detached, so a server that is killed would leave its replicas for ever.
    """
    while not _is_removed(owner):
        time.sleep(_OWNER_SECONDS)
    try:
        serve.delete(serve.get_replica_context().app_name, _blocking=False)
    except Exception as error:  # the replica that Serve starts instead tries again
        logger.warning("the application of an ended server cannot be deleted: %s", error)
    time.sleep(_LAST_SECONDS)  # Serve would start a replica again that ends before the deletion
    os._exit(0)  # waits for no request, whose client has ended as well


def _is_removed(owner: PlacementGroup) -> bool:
    """Return True if Ray has removed a placement group, or knows it no more; False if Ray does not answer."""
    try:
        return ray.util.placement_group_table(owner).get("state", "REMOVED") == "REMOVED"
    except Exception as error:  # Ray's control service may be starting again
        logger.warning("the state of the server's placement group is unknown: %s", error)
        return False


def own_name() -> str:
    """Return this replica's name as the router knows it."""
    return str(serve.get_replica_context().replica_id.unique_id)
