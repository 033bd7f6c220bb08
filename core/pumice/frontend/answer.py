"""The answer to a request that has one, for a thread or for a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Answer(Generic[T]):
    """The answer to a request that has one: ``wait`` for it in a thread, or await it with ``awaited`` in a coroutine.

    Args:
        begin: Checks and submits the request; it may take long.
        finish: Returns the answer made of the future's result.
    """

    def __init__(self, begin: Callable[[], Future[Any]], finish: Callable[[Any], T]) -> None:
        self._begin = begin
        self._finish = finish

    def wait(self) -> T:
        """Return the answer. An exception such as KeyboardInterrupt cancels the request."""
        future = self._begin()
        try:
            return self._finish(future.result())
        finally:
            future.cancel()

    async def awaited(self) -> T:
        """Return the answer, while the event loop goes on. Cancelling the task cancels the request."""
        from asyncio import to_thread, wrap_future

        value = await wrap_future(await to_thread(self._begin))
        return await to_thread(self._finish, value)
