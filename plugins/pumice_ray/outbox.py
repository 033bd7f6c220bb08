"""Events from a replica to one client process: a single stream for all requests, since each stream has a cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from pumice.engine.messages import Event, Failed, Finished, Output, SpeechEnded, SpeechPart
from pumice_ray.mailbox import Mailbox

STREAM_SECONDS = 0.05  # interval of messages; the first token of a completion is sent at once
IDLE_SECONDS = 1.0  # time without requests after which the stream ends


class Outbox:
    """Events for one client. ``put`` may be called by any thread, the other methods by the creating loop."""

    def __init__(self) -> None:
        self.n_users = 0  # requests and event streams
        self._mailbox = Mailbox(STREAM_SECONDS)
        self._left: dict[int, asyncio.Event] = {}  # completions whose end is not sent yet; set once it is
        self._silent: set[int] = set()  # completions without a token so far

    def put(self, events: list[Event]) -> None:
        first = {event.id for event in events if isinstance(event, (Output, SpeechPart))} & self._silent
        self._silent -= first
        self._mailbox.put(events, at_once=bool(first))

    def expect(self, ids: Sequence[int]) -> None:
        """Register completions, or speeches, that begin."""
        self._left |= {id: asyncio.Event() for id in ids}
        self._silent |= set(ids)

    async def sent(self, ids: Sequence[int]) -> None:
        """Wait until all events of these completions are sent."""
        for id in ids:
            if ended := self._left.get(id):
                await ended.wait()

    def forget(self, ids: Sequence[int]) -> list[int]:
        """Forget completions of a client that left; return the unfinished ones."""
        self._silent -= set(ids)
        return [id for id in ids if self._left.pop(id, None)]

    async def messages(self) -> AsyncIterator[list[Event]]:
        """Yield joined events until the client has had no requests for a while."""
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    events = await self._mailbox.take() or []
            except TimeoutError:
                if self._left:
                    continue
                return
            yield events
            for event in events:
                if isinstance(event, (Finished, Failed, SpeechEnded)) and (ended := self._left.pop(event.id, None)):
                    ended.set()
