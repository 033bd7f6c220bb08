"""Run work of requests in a few threads, off the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from starlette.exceptions import HTTPException

from pumice.plugin import CANCELLED

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 4 << 10  # bytes up to which work is cheaper than a switch of threads
MEDIUM = 256 << 10  # bytes up to which work has threads apart from larger work
MAX_WORKERS = 2  # threads for medium work, and as many for large work
MAX_WAITERS = 16  # threads that wait for other processes and files
MAX_SEEING = 2  # threads that wait for images to be decoded and encoded
MAX_QUEUED = 8  # calls that wait for these threads

_seeing = ThreadPoolExecutor(MAX_SEEING, "pumice-images")
_places = threading.Semaphore(MAX_SEEING + MAX_QUEUED)
_workers, _large = ThreadPoolExecutor(MAX_WORKERS, "pumice-work"), ThreadPoolExecutor(MAX_WORKERS, "pumice-large")
_waiters = ThreadPoolExecutor(MAX_WAITERS, "pumice-wait")


async def aside(function: Callable[..., T], *arguments: Any, size: int = MEDIUM) -> T:
    """Return the result of work on about ``size`` bytes, done in a thread unless it is small.

    If the request is cancelled before its turn, the work is skipped.
    """
    if size <= SMALL:
        return function(*arguments)
    return await _run(_workers if size <= MEDIUM else _large, function, *arguments)


async def waiting(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of work that mostly waits, done in a thread."""
    return await _run(_waiters, function, *arguments, **options)


async def seeing(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of work with images, done in a thread.

    After a cancellation no further image is encoded. Work that is cancelled before its turn is skipped, but keeps its
    place in the queue, which holds the images.

    Raises HTTPException if the queue is full.
    """
    if not _places.acquire(blocking=False):
        raise HTTPException(503, "too many requests with images wait; try again later")
    result: Future[T] = Future()
    cancelled = threading.Event()

    def work() -> None:
        try:
            if result.set_running_or_notify_cancel():
                CANCELLED.set(cancelled)
                result.set_result(function(*arguments, **options))
        except BaseException as error:
            result.set_exception(error)
        finally:
            _places.release()

    _seeing.submit(contextvars.copy_context().run, work)
    try:
        return await asyncio.wrap_future(result)
    except asyncio.CancelledError:
        cancelled.set()
        raise


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    work = partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(pool, work)
