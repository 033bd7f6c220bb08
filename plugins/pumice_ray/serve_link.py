"""The connection to a model's replicas: Serve routes each request as a call, and reports its cancellation and failure.

The events of a replica arrive in one stream, which lasts as long as requests are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import secrets
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any

import msgspec
from ray.serve.exceptions import BackPressureError

import pumice
from pumice.engine.messages import (
    Add,
    AnyQuestion,
    Cancel,
    Command,
    Event,
    Facts,
    Failed,
    Finished,
    Inspect,
    Inspected,
    Output,
    Question,
    Snapshot,
    Speak,
    SpeechEnded,
    SpeechPart,
    Timings,
)
from pumice.process.codec import decode_events, decode_facts, encode_command
from pumice_ray.errors import explain
from pumice_ray.mailbox import numbered

_TRIES = 3  # attempts for a request whose replica dies before the first event
_FULL_SECONDS = 0.1  # delay before a full queue is tried again
_END_SECONDS = 5.0  # time for open requests to end with the link


@dataclass
class _Call:
    """A request sent to a replica, whose name is known once the replica accepts it."""

    ids: dict[int, int]  # open completions: id at the replica -> id of the client
    over: asyncio.Future[None]
    replica: str = ""
    answered: bool = False  # whether any event has arrived


def first_id() -> int:
    """Return the start of a range of ids that no other process uses."""
    return secrets.randbits(62)


class ServeLink:
    """All replicas of a deployment as one engine. ``handle`` is Serve's handle; ``ended`` is called at the end.

    If a replica dies, its requests fail unless no event was sent yet; Serve replaces it, and the link stays open.
    """

    keeps_media = False  # another replica may answer the request

    def __init__(self, handle: Any, receive: Callable[[list[Event]], None], ended: Callable[[], None]) -> None:
        self.loaded: Future[Facts] = Future()
        self.error: Exception | None = None  # never set: Serve restarts replicas
        self._handle = handle
        streaming = handle.options(stream=True)
        # Created once, since creation is expensive.
        self._generating, self._speaking = (streaming.generate, streaming.listen)
        self._receive = receive
        self._ended = ended
        self._closing = False
        self._name = uuid.uuid4().hex  # identifies this client to replicas
        self._ids = itertools.count(first_id())
        self._requests: dict[int, asyncio.Task[None]] = {}  # by id of the completion
        self._calls: dict[int, _Call] = {}  # by id at the replica
        self._asked: dict[int, asyncio.Task[None]] = {}  # other commands that are not answered yet, by id
        self._listening: dict[str, asyncio.Task[None]] = {}  # by replica
        self._tasks: set[asyncio.Task[None]] = set()  # keeps references, which the loop does not
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pumice-serve-link", daemon=True)
        self._thread.start()
        self._start(self._load())

    def send(self, command: Command) -> None:
        """Send a command without waiting. Raises ModelClosedError."""
        if self._closing:
            raise pumice.ModelClosedError("the model is closed")
        if isinstance(command, (Add, Speak)):
            self._loop.call_soon_threadsafe(self._add, command)
        elif isinstance(command, Cancel):
            self._loop.call_soon_threadsafe(self._cancel, command.id)
        elif isinstance(command, Inspect):
            self._start(self._answer(command.id, self._snapshot(command.id)))
        elif isinstance(command, Question):
            self._loop.call_soon_threadsafe(self._begin, command)

    def close(self) -> None:
        """Cancel open requests and shut down the replicas."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_END_SECONDS)
        with contextlib.suppress(Exception):  # Ray may have been shut down already
            self._handle.shutdown()  # else it keeps reporting queue lengths, even after the cluster ended
            self._ended()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.call_soon_threadsafe(self._spawn, work)

    # --- in the loop

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self) -> None:
        try:
            self.loaded.set_result(decode_facts(await self._handle.facts.remote()))
        except Exception as error:
            self.loaded.set_exception(explain(error))

    async def _end(self) -> None:
        for id in list(self._requests):
            self._cancel(id)
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, add: Add | Speak) -> None:
        self._requests |= dict.fromkeys(_ids(add), self._spawn(self._generate(add)))

    def _begin(self, command: AnyQuestion) -> None:
        task = self._asked[command.id] = self._spawn(self._answer(command.id, self._ask(command)))
        task.add_done_callback(lambda _: self._asked.pop(command.id, None))

    def _cancel(self, id: int) -> None:
        """Cancel a completion, whose call ends with its last one, or another command, which its replica then ends."""
        if asked := self._asked.get(id):
            asked.cancel()
        task = self._requests.pop(id, None)
        if task:
            self._receive([Finished(id, "", "cancelled", Timings())])
            if task not in self._requests.values():
                task.cancel()

    async def _generate(self, add: Add | Speak) -> None:
        for left in reversed(range(_TRIES)):
            call = _Call({next(self._ids): id for id in _ids(add)}, self._loop.create_future())
            try:
                await self._call(call, add)
                return
            except Exception as error:
                failure = explain(error)
                if call.answered or not left or not isinstance(failure, pumice.EngineDiedError):
                    break
        failed = [id for id in _ids(add) if self._requests.pop(id, None)]
        self._receive([Failed(id, failure) for id in failed])

    async def _call(self, call: _Call, add: Add | Speak) -> None:
        """Send a call to a replica and wait. Raises an error if the replica refuses it or dies."""
        ids = list(call.ids)
        self._calls |= dict.fromkeys(ids, call)
        own = {"ids": ids} if isinstance(add, Add) else {"id": ids[0]}
        command = msgspec.structs.replace(add, **own)
        stream = self._generating.remote(encode_command(command), self._name)
        reading = self._spawn(self._read(call, stream))
        limit = add.request.timeout if isinstance(add, Add) else None
        seconds = math.inf if limit is None else limit
        timer = self._loop.call_later(seconds, self._give_up, call)
        try:
            await call.over
        except BaseException:
            stream.cancel()
            reading.cancel()
            raise
        finally:
            timer.cancel()
            for id in ids:
                self._calls.pop(id, None)

    def _give_up(self, call: _Call) -> None:
        """Time a request out; a replica that has accepted it reports the timeout itself."""
        if not call.replica and not call.over.done():
            late = [id for id in call.ids.values() if self._requests.pop(id, None)]
            self._receive([Finished(id, "", "timeout", Timings()) for id in late])
            call.over.cancel()

    async def _read(self, call: _Call, stream: Any) -> None:
        """Read a call's own results: the replica's name, or its death."""
        try:
            async for call.replica in stream:
                if call.replica not in self._listening:
                    self._listening[call.replica] = self._spawn(self._listen(call.replica))
        except Exception as error:
            if not call.over.done():
                call.over.set_exception(error)

    async def _listen(self, replica: str) -> None:
        """Read the events of a replica as long as it has open requests."""
        try:
            while self._open(replica):
                stream = self._speaking.remote(replica, self._name)
                try:
                    async for data in stream:
                        self._hear(decode_events(data))
                except BackPressureError:
                    await asyncio.sleep(_FULL_SECONDS)
                except asyncio.CancelledError:
                    stream.cancel()
                    raise
        except Exception as error:
            for call in self._open(replica):
                call.over.set_exception(error)
        finally:
            del self._listening[replica]

    def _open(self, replica: str) -> list[_Call]:
        calls = {id(call): call for call in self._calls.values() if call.replica == replica}
        return [call for call in calls.values() if not call.over.done()]

    def _hear(self, events: Iterable[Event]) -> None:
        """Pass events on with the client's ids, except those of completions that were cancelled here."""
        heard: list[Event] = []
        for event in events:
            call = self._calls.get(event.id)
            if call is None or event.id not in call.ids:  # the completion was cancelled
                continue
            id = call.ids[event.id]
            call.answered = call.answered or isinstance(event, (Output, SpeechPart))
            is_open = id in self._requests
            if isinstance(event, (Finished, Failed, SpeechEnded)):
                self._requests.pop(id, None)
                del call.ids[event.id]
                if not call.ids and not call.over.done():
                    call.over.set_result(None)
            if is_open:
                heard.append(numbered(event, id))
        self._receive(heard)

    async def _answer(self, id: int, work: Coroutine[Any, Any, Event]) -> None:
        try:
            event = await work
        except Exception as error:
            event = Failed(id, explain(error))
        self._receive([event])

    async def _ask(self, command: AnyQuestion) -> Event:
        response = self._handle.answer.remote(encode_command(command))
        try:
            (event,) = decode_events(await response)
        except asyncio.CancelledError:
            response.cancel()
            raise
        return numbered(event, command.id)

    async def _snapshot(self, id: int) -> Event:
        answers = await asyncio.to_thread(self._handle.broadcast("snapshot").results, return_exceptions=True)
        events = [event for data in _of_living(answers) for event in decode_events(data)]
        failed = next((event for event in events if isinstance(event, Failed)), None)
        if failed:
            return numbered(failed, id)
        return Inspected(id, added([event.value for event in events if isinstance(event, Inspected)]))


def _ids(command: Add | Speak) -> list[int]:
    """Return the ids of a command whose events come in a stream."""
    return list(command.ids) if isinstance(command, Add) else [command.id]


def _of_living(answers: list[Any]) -> list[bytes]:
    """Return the answers of replicas without the deaths of others. Raises the first failure if none remains."""
    failures = [answer for answer in answers if isinstance(answer, Exception)]
    rest = [answer for answer in answers if not isinstance(answer, Exception)]
    fatal = (failure for failure in failures if not isinstance(explain(failure), pumice.EngineDiedError))
    if failure := next(fatal, None if rest or not failures else failures[0]):
        raise failure
    return rest


def added(snapshots: list[Snapshot]) -> Snapshot:
    """Return the sum of all replicas' snapshots."""
    snapshots = snapshots or [Snapshot(0, 0, 0, 0, {}, {}, 0)]
    return Snapshot(**{one.name: _sum([getattr(item, one.name) for item in snapshots]) for one in fields(Snapshot)})


def _sum(values: list[Any]) -> Any:
    """Return the sum of numbers or tallies, or of each key's in mappings."""
    if isinstance(values[0], Mapping):
        keys = {key for value in values for key in value}
        return {key: _sum([value[key] for value in values if key in value]) for key in keys}
    return sum(values[1:], values[0])
