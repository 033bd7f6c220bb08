"""The way to the replicas of a model: each request is a call that Serve routes, cancels, and sees the death of."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pumice
from pumice.engine.messages import (
    Add,
    Answer,
    Ask,
    Cancel,
    Command,
    Encode,
    Event,
    Facts,
    Failed,
    Finished,
    Output,
    Score,
    Snapshot,
    Timings,
)
from pumice.process.frames import unpack
from pumice_ray.errors import explain
from pumice_ray.mailbox import numbered

_TRIES = 3  # of a request whose replica died before anything of its answer was sent


class ServeLink:
    """All replicas of a deployment as one engine; ``handle`` is Serve's way to them, ``ended`` is called at its end.

    A replica that dies fails what it had in hand, unless nothing was sent yet; Serve replaces it, and the link stays.
    """

    def __init__(self, handle: Any, receive: Callable[[list[Event]], None], ended: Callable[[], None]) -> None:
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # the replicas never end by themselves all
        self._handle = handle
        self._receive = receive
        self._ended = ended
        self._closing = False
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by the id of each completion
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pumice-serve-link", daemon=True).start()
        self._start(self._load())

    def send(self, command: Command) -> None:
        """Never waits. Raises ModelClosedError."""
        if self._closing:
            raise pumice.ModelClosedError("the model is closed")
        if isinstance(command, Add):
            self._loop.call_soon_threadsafe(self._add, command)
        elif isinstance(command, Cancel):
            self._loop.call_soon_threadsafe(self._cancel, command.id)
        elif isinstance(command, (Encode, Score)):
            self._start(self._answer(command.id, self._ask(command)))
        elif isinstance(command, Ask):
            self._start(self._answer(command.id, self._snapshot(command.id)))

    def close(self) -> None:
        """End what is in hand as cancelled, and the replicas."""
        self._closing = True
        done = threading.Event()

        def end() -> None:
            for id in list(self._tasks):
                self._cancel(id)
            done.set()

        self._loop.call_soon_threadsafe(end)
        done.wait()
        with contextlib.suppress(Exception):  # Ray may have ended before
            self._handle.shutdown()  # else it goes on to tell Serve of queues, of a cluster that has ended too
            self._ended()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- in the loop

    async def _load(self) -> None:
        try:
            self.loaded.set_result(await self._handle.facts.remote())
        except Exception as error:
            self.loaded.set_exception(explain(error))

    def _add(self, add: Add) -> None:
        task = self._loop.create_task(self._generate(add))
        self._tasks |= dict.fromkeys(add.ids, task)

    def _cancel(self, id: int) -> None:
        """End a completion; the call ends with the last of them."""
        task = self._tasks.pop(id, None)
        if task:
            self._receive([Finished(id, "", "cancelled", Timings())])
            if task not in self._tasks.values():
                task.cancel()

    async def _generate(self, add: Add) -> None:
        for left in reversed(range(_TRIES)):
            stream = self._handle.options(stream=True).generate.remote(add.request)
            sent = False
            try:
                async for packed in stream:
                    events = unpack(packed)
                    sent = sent or any(isinstance(event, Output) for event in events)
                    self._hear(add, events)
                return
            except asyncio.CancelledError:
                stream.cancel()
                raise
            except Exception as error:
                failure = explain(error)
                if sent or not left or not isinstance(failure, pumice.EngineDiedError):
                    break
        self._hear(add, [Failed(number, failure) for number in range(len(add.ids))])

    def _hear(self, add: Add, events: list[Event]) -> None:
        """Pass events on, with the ids that were asked for; those of completions that ended here are left out."""
        known = [numbered(event, add.ids[event.id]) for event in events]
        heard = [event for event in known if event.id in self._tasks]
        for event in heard:
            if isinstance(event, (Finished, Failed)):
                del self._tasks[event.id]
        self._receive(heard)

    async def _answer(self, id: int, work: Coroutine[Any, Any, Event]) -> None:
        try:
            event = await work
        except Exception as error:
            event = Failed(id, explain(error))
        self._receive([event])

    async def _ask(self, command: Encode | Score) -> Event:
        event = await self._handle.answer.remote(command)
        return numbered(event, command.id)

    async def _snapshot(self, id: int) -> Event:
        snapshots = await asyncio.to_thread(self._handle.broadcast("snapshot").results)
        return Answer(id, added(snapshots))


def added(snapshots: list[Snapshot]) -> Snapshot:
    """What all replicas have in hand together."""
    windows = {window for each in snapshots for window in each.n_blocks}
    return Snapshot(
        n_waiting=sum(each.n_waiting for each in snapshots),
        n_running=sum(each.n_running for each in snapshots),
        n_slots=sum(each.n_slots for each in snapshots),
        n_slots_free=sum(each.n_slots_free for each in snapshots),
        n_blocks={window: sum(each.n_blocks.get(window, 0) for each in snapshots) for window in windows},
        n_blocks_free={window: sum(each.n_blocks_free.get(window, 0) for each in snapshots) for window in windows},
        n_steps=sum(each.n_steps for each in snapshots),
    )
