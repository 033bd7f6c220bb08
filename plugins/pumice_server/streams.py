"""Streams of a model on their way to a client: several as one, and those whose time was over before they began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeVar

from pumice_server.errors import too_late

T = TypeVar("T")


class Item(Protocol):
    """A part of a stream."""

    @property
    def finish_reason(self) -> str | None: ...


class Done(Protocol):
    """All of a stream."""

    @property
    def finish_reason(self) -> str: ...

    @property
    def tokens(self) -> Sequence[int]: ...


S = TypeVar("S", bound=Item, covariant=True)
D = TypeVar("D", bound=Done, covariant=True)


class Source(Protocol[S, D]):
    """A stream of a model."""

    async def ready(self) -> Sequence[S]:
        """What there is by now, at least one item; none after the last."""

    async def completion(self) -> D:
        """All of it, at its end."""

    def close(self) -> None: ...

    @property
    def timings(self) -> Any: ...


def is_late(done: Done) -> bool:
    """Whether the time of a request was over before its first token."""
    return done.finish_reason == "timeout" and not done.tokens


async def merge(streams: Sequence[Source[S, Any]]) -> AsyncIterator[tuple[int, Sequence[S]]]:
    """Items of several streams, as many as there are whenever somebody asks, with the number of their stream.

    Raises HTTPException where the time of one was over before its first token, and nothing came of the others.
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
    """Items as they come, and what is put into a queue before the next of them."""
    coming, told = asyncio.ensure_future(_next(items)), asyncio.ensure_future(others.get())
    try:
        while True:
            await asyncio.wait((coming, told), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                yield told.result()
                told = asyncio.ensure_future(others.get())
                continue
            found = coming.result()
            if not found:
                return
            coming = asyncio.ensure_future(_next(items))
            yield found[0]
    finally:
        coming.cancel()
        told.cancel()


async def _next(iterator: AsyncIterator[T]) -> list[T]:
    """The next item; an empty list after the last."""
    try:
        return [await anext(iterator)]
    except StopAsyncIteration:
        return []
