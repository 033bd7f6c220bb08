"""Keep many rows in flight. Results come in the order in which they finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from pumice_server.batch.row_client import is_passing

T = TypeVar("T")
AnswerRow = Callable[[T], Awaitable[dict[str, Any]]]


async def answer_all(rows: Iterable[T], answer: AnswerRow[T], n_in_flight: int) -> AsyncGenerator[dict[str, Any]]:
    """Yield one result for each row.

    A row that failed because the engine died runs once more at the end, alone, since another row may have killed it.
    """
    troubled = []
    async for row, result in _answered(rows, answer, n_in_flight):
        if is_passing(result):
            troubled.append(row)
        else:
            yield result
    async for _, result in _answered(troubled, answer, 1):
        yield result


async def _answered(
    rows: Iterable[T], answer: AnswerRow[T], n_in_flight: int
) -> AsyncIterator[tuple[T, dict[str, Any]]]:
    coming = iter(rows)
    running: dict[asyncio.Future[dict[str, Any]], T] = {}
    try:
        while True:
            while len(running) < n_in_flight and (row := next(coming, None)) is not None:
                running[asyncio.ensure_future(answer(row))] = row
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield running.pop(task), task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
