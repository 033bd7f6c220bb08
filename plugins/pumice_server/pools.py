"""Pools: every place where requests of clients wait, or hold something, with one rule for all of them.

A pool has a bound, a share for each client, a deadline, and metrics. A client is an API key, or without keys an
address; ``CLIENT`` names it, and is empty for the server's own work, which no pool refuses. Work that waits is begun
for the client with the least under way, and one client never has the last place. If the queue is full, a client that
has more of it than another gives up its latest place to that one. What is held for long has no queue: a client holds at
most half of what the others leave, or a tenth.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, ParamSpec, TypeVar

from starlette.exceptions import HTTPException

from pumice.plugin.unstable import CLIENT, REQUEST_CANCELLED
from pumice_server import limits

P = ParamSpec("P")
T = TypeVar("T")


def share(limit: int, client: str, others: int) -> int:
    """Return how much of ``limit`` a client may have, of which the others have ``others``: all of it for ``""``."""
    left = limit - others
    return min(left, max(1, limit // 10, left // 2)) if client else left


@dataclass
class Place:
    """What a client has of a pool."""

    pool: Pool
    client: str
    n: int = 0

    def grow(self, n: int) -> None:
        """Take ``n`` more. Raises HTTPException beyond the bound, and beyond the client's share."""
        self.pool.check(self.client, n)
        self.count(n)

    def count(self, n: int) -> None:
        """Take ``n`` more in any case."""
        self.n += n
        self.pool.held[self.client] += n

    def release(self) -> None:
        self.pool.release(self)


@dataclass(eq=False)
class _Waiter:
    place: Place
    turn: Future[None] = field(default_factory=Future)


class Pool:
    """A pool of places.

    Args:
        name: Label of its metrics, and row of the table in docs/request_limits.md.
        what: What has places, in the plural; begins an error message.
        n_places: Places, or bytes.
        n_queued: Calls that wait for a place.
        seconds: Time to wait in the queue.
    """

    all: ClassVar[list[Pool]] = []

    def __init__(self, name: str, what: str, n_places: int, n_queued: int = 0, seconds: float = 60.0) -> None:
        self.name, self.what = name, what
        self.n_places, self.n_queued, self.seconds = n_places, n_queued, seconds
        self.held: Counter[str] = Counter()
        self.n_refused = 0
        self._queue: list[_Waiter] = []
        self._lock = threading.RLock()
        self._threads = ThreadPoolExecutor(n_places, f"pumice-{name}") if n_queued else None
        Pool.all.append(self)

    @property
    def n_held(self) -> int:
        return sum(self.held.copy().values())

    @property
    def n_waiting(self) -> int:
        return len(self._queue)

    # --- holding

    @contextmanager
    def hold(self, n: int = 1) -> Iterator[Place]:
        """Provide ``n`` places, without waiting. Raises HTTPException."""
        place = self.take(n)
        try:
            yield place
        finally:
            place.release()

    def take(self, n: int = 1) -> Place:
        """Return ``n`` places, without waiting; ``release`` gives them back. Raises HTTPException."""
        place = Place(self, CLIENT.get())
        place.grow(n)
        return place

    def check(self, client: str, n: int) -> None:
        """Raise HTTPException if a client may not hold ``n`` more."""
        own = self.held[client]
        if own + n > share(self.n_places, client, self.n_held - own):
            raise self._refusal(f"{self.what} already")

    def release(self, place: Place) -> None:
        """Take the places of a client back, and begin what waits for them."""
        with self._lock:
            self.held[place.client] -= place.n
            place.n = 0
            if not self.held[place.client]:
                del self.held[place.client]
            self._begin()

    # --- waiting

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of a call in a thread.

        A cancellation cancels ``REQUEST_CANCELLED`` of the call; the place is free once the call has ended.

        Raises HTTPException if the queue is full, or the wait takes too long.
        """
        assert self._threads is not None
        place = await self._enter()
        cancelled: Future[None] = Future()

        def work() -> T:
            REQUEST_CANCELLED.set(cancelled)
            return function(*arguments, **options)

        try:
            running = self._threads.submit(contextvars.copy_context().run, work)
        except BaseException:
            place.release()
            raise
        running.add_done_callback(lambda _: place.release())
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            cancelled.cancel()
            raise

    async def _enter(self) -> Place:
        """Return a place, after a wait for the client's turn. Raises HTTPException."""
        waiter = _Waiter(Place(self, CLIENT.get()))
        with self._lock:
            if waiter.place.client and self.n_held + self.n_waiting >= self.n_places + self.n_queued:
                self._make_room(waiter.place.client)
            self._queue.append(waiter)
            self._begin()
        try:
            if not waiter.turn.done():
                async with asyncio.timeout(self.seconds if waiter.place.client else None):
                    await asyncio.wrap_future(waiter.turn)
            waiter.turn.result()
        except TimeoutError:
            self._give_up(waiter)
            raise self._refusal(f"{self.what} for {self.seconds:g} seconds") from None
        except BaseException:
            self._give_up(waiter)
            raise
        return waiter.place

    def _make_room(self, client: str) -> None:
        """Refuse the latest call of the client with most calls, or raise HTTPException if this one has as many."""
        loads = self.held + Counter(waiter.place.client for waiter in self._queue)
        latest = max(reversed(self._queue), key=lambda waiter: loads[waiter.place.client])
        if loads[latest.place.client] <= loads[client] + 1:
            raise self._refusal(self.what)
        self._queue.remove(latest)
        if latest.turn.set_running_or_notify_cancel():
            latest.turn.set_exception(self._refusal(self.what))

    def _begin(self) -> None:
        """Give free places to those that wait, first to the client that has fewest; one client never has the last."""
        while self._queue and self.n_held < self.n_places:
            waiter = min(self._queue, key=lambda waiter: self.held[waiter.place.client])
            client = waiter.place.client
            if client and self.held[client] >= max(1, self.n_places - 1):
                return
            self._queue.remove(waiter)
            if waiter.turn.set_running_or_notify_cancel():
                waiter.place.count(1)
                waiter.turn.set_result(None)

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif waiter.place.n:
                waiter.place.release()

    def _refusal(self, problem: str) -> HTTPException:
        self.n_refused += 1
        return HTTPException(503, f"too many {problem}; try again later")


# --- work in threads

BODIES = Pool("bodies", "requests wait to be read", 2, limits.MAX_CONNECTIONS)
LARGE_BODIES = Pool("large_bodies", "large requests wait to be read", 2, 256)
PREPARATION = Pool("preparation", "requests wait for their chat template", 16, limits.MAX_CONNECTIONS)
SCHEMAS = Pool("schemas", "requests with a schema, grammar or tools wait", 4, 256)
MEDIA = Pool("media", "requests with images or sound wait", 4, 32, 600.0)
FETCHES = Pool("fetches", "requests wait for images of other hosts", 4, 16, 120.0)
FILES = Pool("files", "requests wait for files of the server", 8, limits.MAX_CONNECTIONS)
FACTS = Pool("facts", "requests wait for descriptions of models", 4, limits.MAX_CONNECTIONS)

# --- what requests hold

ARRIVING = Pool("arriving", "large bodies arrive at once", limits.MAX_ARRIVING)
LOADS = Pool("loads", "requests wait for models to load", limits.MAX_CONNECTIONS // 2)
UPLOADS = Pool("uploads", "files are being uploaded", 8)
PULLS = Pool("pulls", "models are being fetched", 8)
STREAMS = Pool("streams", "streams are kept", limits.MAX_KEPT_STREAMS)
LISTENERS = Pool("listeners", "clients follow the models", 128)


def table() -> list[str]:
    """Return the rows of the table of pools in docs/request_limits.md."""
    rows = []
    for pool in Pool.all:
        bound = f"{pool.n_places >> 20} MiB" if pool is ARRIVING else str(pool.n_places)
        share, wait = "half of what others leave, or a tenth", "none: 503"
        if pool.n_queued:
            bound += f" at once, {pool.n_queued} wait"
            share = f"{max(1, pool.n_places - 1)} at once, an equal part of the queue"
            wait = f"{pool.seconds:g} seconds"
        rows.append(f"| `{pool.name}` | {pool.what} | {bound} | {share} | {wait} |")
    return rows
