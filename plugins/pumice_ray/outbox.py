"""The way back from a replica to a process that asks it: one stream of messages for all requests, since each costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from pumice.engine.messages import Event, Failed, Finished, Output
from pumice_ray.mailbox import Mailbox

STREAM_SECONDS = 0.05  # between two messages: tokens are joined, but the first of a completion leaves at once
IDLE_SECONDS = 1.0  # without a request, after which the stream ends


class Outbox:
    """Events for one who asks. ``put`` may be called by any thread, all else by the loop in which it was made."""

    def __init__(self) -> None:
        self.n_users = 0  # requests, and who listens
        self._mailbox = Mailbox(STREAM_SECONDS)
        self._left: dict[int, asyncio.Event] = {}  # completions whose end was not sent yet; set when it is
        self._silent: set[int] = set()  # those without a token

    def put(self, events: list[Event]) -> None:
        first = {event.id for event in events if isinstance(event, Output)} & self._silent
        self._silent -= first
        self._mailbox.put(events, at_once=bool(first))

    def expect(self, ids: Sequence[int]) -> None:
        """These completions begin."""
        self._left |= {id: asyncio.Event() for id in ids}
        self._silent |= set(ids)

    async def sent(self, ids: Sequence[int]) -> None:
        """Wait until all that there is to say of these was sent."""
        for id in ids:
            if ended := self._left.get(id):
                await ended.wait()

    def forget(self, ids: Sequence[int]) -> list[int]:
        """Nobody waits for these any more: those that have not ended."""
        self._silent -= set(ids)
        return [id for id in ids if self._left.pop(id, None)]

    async def messages(self) -> AsyncIterator[list[Event]]:
        """Events, joined, until nothing was asked for a while."""
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
                if isinstance(event, (Finished, Failed)) and (ended := self._left.pop(event.id, None)):
                    ended.set()
