"""Merge streams of a model, and detect those that timed out before their first token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeVar

import pumice
from pumice_server.errors import too_late

T = TypeVar("T")


S = TypeVar("S", bound="pumice.Piece | pumice.ChatDelta", covariant=True)
D = TypeVar("D", bound="pumice.Completion | pumice.ChatCompletion", covariant=True)


class Source(Protocol[S, D]):
    """A stream of a model."""

    async def ready(self) -> Sequence[S]:
        """Return the items so far, at least one; an empty sequence after the last."""

    async def completion(self) -> D:
        """Return the whole completion, at its end."""

    def close(self) -> None: ...

    @property
    def tokens(self) -> Sequence[int]:
        """Tokens that were generated and read so far."""

    @property
    def timings(self) -> pumice.Timings: ...


def is_late(done: pumice.Completion | pumice.ChatCompletion) -> bool:
    """Return True if a request timed out before its first token."""
    return done.finish_reason == "timeout" and not done.tokens


async def merge(streams: Sequence[Source[S, Any]]) -> AsyncIterator[tuple[int, Sequence[S]]]:
    """Yield the number of a stream and its items so far, from several streams.

    Raises HTTPException if a stream timed out before its first token and no other stream has any.
    """
    nothing = True
    async for index, items in _merged(streams):
        if nothing and items[-1].finish_reason == "timeout" and is_late(await streams[index].completion()):
            raise too_late()
        nothing = False
        yield index, items


async def _merged(streams: Sequence[Source[S, Any]]) -> AsyncIterator[tuple[int, Sequence[S]]]:
    if len(streams) == 1:
        while items := await streams[0].ready():
            yield 0, items
        return
    coming = {asyncio.ensure_future(stream.ready()): index for index, stream in enumerate(streams)}
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = coming.pop(task)
                items = task.result()
                if items:
                    coming[asyncio.ensure_future(streams[index].ready())] = index
                    yield index, items
    finally:
        for task in coming:
            task.cancel()


async def interleave(items: AsyncIterator[T], others: asyncio.Queue[Any]) -> AsyncIterator[T | Any]:
    """Yield items, and in between those of a queue."""
    coming, queued = asyncio.ensure_future(_next(items)), asyncio.ensure_future(others.get())
    try:
        while True:
            await asyncio.wait((coming, queued), return_when=asyncio.FIRST_COMPLETED)
            if queued.done():
                yield queued.result()
                queued = asyncio.ensure_future(others.get())
                continue
            item = coming.result()
            if not item:
                return
            coming = asyncio.ensure_future(_next(items))
            yield item[0]
    finally:
        coming.cancel()
        queued.cancel()


async def _next(iterator: AsyncIterator[T]) -> list[T]:
    """Return the next item in a list, or an empty list after the last."""
    try:
        return [await anext(iterator)]
    except StopAsyncIteration:
        return []
