"""A replica of a model: an engine in an actor of Ray Serve. A request is a call, its events a stream of messages."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pumice
from pumice.engine.messages import (
    Add,
    Ask,
    Cancel,
    Close,
    Command,
    Encode,
    Event,
    Facts,
    Failed,
    Finished,
    Request,
    Score,
    Snapshot,
)
from pumice.process.frames import pack
from pumice.process.host import EngineHost
from pumice.running import Running
from pumice_ray.actor import own_address, own_devices
from pumice_ray.mailbox import Mailbox, numbered

STREAM_SECONDS = 0.05  # between two messages of a stream: its tokens are joined
_LAST_SECONDS = 1.0  # for a replica that cannot go on to say why
_BEAT_SECONDS = 60.0  # in which an engine ends a step; one that does not is replaced


class EngineReplica:
    """The class of the deployment. Serve starts it, asks for its health, replaces it and adds others."""

    def __init__(self, path: str, options: Mapping[str, Any], name: str) -> None:
        """Raises what ``pumice.load`` raises."""
        self._model = pumice.load(path, **own_devices(options))
        self._running = Running(
            "serve", name, self._model.backends, self._model.memory, self._model.n_ctx, own_address()
        )
        self._ids = itertools.count()
        self._mailboxes: dict[int, tuple[Mailbox, int]] = {}  # and the number of the completion in its request
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._host = EngineHost(self._model, self._deliver)
        threading.Thread(target=self._obey, name="pumice-commands", daemon=True).start()

    async def facts(self) -> Facts:
        return self._model.facts

    async def describe(self) -> Running:
        """For ``pumice ps --ray``."""
        return self._running

    async def generate(self, request: Request) -> AsyncIterator[list[Any]]:
        """The events of a request, packed; its completions are numbered from 0. If nobody listens any more, it ends."""
        ids = [next(self._ids) for _ in range(request.n)]
        mailbox = Mailbox(STREAM_SECONDS)
        self._mailboxes |= {id: (mailbox, number) for number, id in enumerate(ids)}
        try:
            self._commands.put(Add(ids, request))
            async for events in self._messages(mailbox, ids):
                yield pack(events)
        finally:
            for id in ids:
                if self._mailboxes.pop(id, None):
                    self._commands.put(Cancel(id))

    async def answer(self, command: Encode | Score) -> Event:
        """The one event that answers a command, with an id of this replica."""
        return await self._ask(lambda id: replace(command, id=id))

    async def snapshot(self) -> Snapshot:
        return (await self._ask(Ask)).snapshot

    async def check_health(self) -> None:
        """Serve asks this now and then; raises where the engine hangs, or has ended."""
        await asyncio.wait_for(self.snapshot(), _BEAT_SECONDS)

    def __del__(self) -> None:
        if hasattr(self, "_commands"):
            self._commands.put(Close())
            self._model.close()

    async def _messages(self, mailbox: Mailbox, ids: Sequence[int]) -> AsyncIterator[list[Event]]:
        left = len(ids)
        while left:
            events = await mailbox.take() or []
            left -= sum(isinstance(event, (Finished, Failed)) for event in events)
            yield events

    async def _ask(self, command: Any) -> Any:
        """The answer to a command, which is made of an id. Raises what the engine says."""
        id, mailbox = next(self._ids), Mailbox(0.0)
        self._mailboxes[id] = mailbox, 0
        try:
            self._commands.put(command(id))
            (event,) = await mailbox.take() or []
        finally:
            del self._mailboxes[id]
        if isinstance(event, Failed):
            raise event.error
        return event

    # --- in other threads

    def _obey(self) -> None:
        while not isinstance(command := self._commands.get(), Close):
            self._host.obey(command)

    def _deliver(self, events: list[Event]) -> None:
        """Give the events of a step to those who asked, with the numbers that they know."""
        for event in events:
            if isinstance(event, Failed) and isinstance(event.error, pumice.EngineDiedError):
                threading.Timer(_LAST_SECONDS, os._exit, [1]).start()  # a stage is gone: Serve starts all of it again
            found = self._mailboxes.get(event.id)
            if found:
                mailbox, number = found
                mailbox.put([numbered(event, number)])
