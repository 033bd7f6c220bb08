"""Outgoing events of an actor: those of several steps share a message, since each message has a cost."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Iterable

import msgspec

from pumice.engine.messages import Event, Output

JOIN_SECONDS = 0.02  # minimum interval of messages; the first event after a pause is sent at once


def numbered(event: Event, id: int) -> Event:
    """Return the event with another id."""
    return msgspec.structs.replace(event, id=id)


def joined(events: Iterable[Event]) -> list[Event]:
    """Merge consecutive outputs of each completion into one."""
    pending: list[Event | list[Output]] = []
    outputs: dict[int, list[Output]] = {}  # latest consecutive outputs by completion
    for event in events:
        if not isinstance(event, Output):
            outputs.pop(event.id, None)
            pending.append(event)
        elif event.id in outputs:
            outputs[event.id].append(event)
        else:
            outputs[event.id] = [event]
            pending.append(outputs[event.id])
    return [_one(item) if isinstance(item, list) else item for item in pending]


def _one(outputs: list[Output]) -> Output:
    if len(outputs) == 1:
        return outputs[0]
    return Output(
        outputs[0].id,
        [token for output in outputs for token in output.tokens],
        [text for output in outputs for text in output.texts],
        None if outputs[0].logprobs is None else [one for output in outputs for one in output.logprobs or ()],
    )


class Mailbox:
    """A queue of events: ``put`` may be called by any thread, ``take`` by one coroutine of the creating loop."""

    def __init__(self, seconds: float = JOIN_SECONDS) -> None:
        self._seconds = seconds
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._filled = asyncio.Event()
        self._pressing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._last = -math.inf
        self.closed = False

    def put(self, events: list[Event], at_once: bool = False) -> None:
        """Add events. ``at_once``: send the next message without waiting for more."""
        with self._lock:
            wake = not self._events
            self._events += events
        if wake:
            self._loop.call_soon_threadsafe(self._filled.set)
        if at_once:
            self._loop.call_soon_threadsafe(self._pressing.set)

    def close(self) -> None:
        """End the queue; ``take`` returns the remaining events, then None."""
        self.closed = True
        self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[Event] | None:
        """Return all events since the last message, ``joined``, at least one; None after the last."""
        await self._filled.wait()
        wait = self._last + self._seconds - time.monotonic()
        if wait > 0 and not self.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._pressing.wait()
        with self._lock:
            events, self._events = self._events, []
            if not self.closed:
                self._filled.clear()
                self._pressing.clear()
        self._last = time.monotonic()
        return joined(events) or None
