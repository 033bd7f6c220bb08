"""Events on their way out of an actor: those of several steps are joined in a message, since a message costs."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Iterable

import msgspec

from pumice.engine.messages import Event, Output

JOIN_SECONDS = 0.02  # between two messages at least; the first event after a pause leaves at once


def numbered(event: Event, id: int) -> Event:
    """An event as that of another id."""
    return msgspec.structs.replace(event, id=id)


def joined(events: Iterable[Event]) -> list[Event]:
    """The tokens of each completion in one output, as far as nothing else was said of it between them."""
    found: list[Event | list[Output]] = []
    outputs: dict[int, list[Output]] = {}  # the last in a row, by completion
    for event in events:
        if not isinstance(event, Output):
            outputs.pop(event.id, None)
            found.append(event)
        elif event.id in outputs:
            outputs[event.id].append(event)
        else:
            outputs[event.id] = [event]
            found.append(outputs[event.id])
    return [_one(each) if isinstance(each, list) else each for each in found]


def _one(outputs: list[Output]) -> Output:
    if len(outputs) == 1:
        return outputs[0]
    return Output(
        outputs[0].id,
        [token for each in outputs for token in each.tokens],
        [text for each in outputs for text in each.texts],
        None if outputs[0].logprobs is None else [one for each in outputs for one in each.logprobs or ()],
    )


class Mailbox:
    """``put`` may be called by any thread, ``take`` by one coroutine of the loop in which it was made."""

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
        """``at_once``: the next message does not wait for others."""
        with self._lock:
            wake = not self._events
            self._events += events
        if wake:
            self._loop.call_soon_threadsafe(self._filled.set)
        if at_once:
            self._loop.call_soon_threadsafe(self._pressing.set)

    def close(self) -> None:
        """Nothing more comes; ``take`` gives what is there, then None."""
        self.closed = True
        self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[Event] | None:
        """All that came since the last message, ``joined``, at least one event; None after the last."""
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
