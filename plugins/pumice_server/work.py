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

from pumice.plugin.unstable import REQUEST_CANCELLED

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 4 << 10  # bytes up to which work is cheaper than a switch of threads
MEDIUM = 256 << 10  # bytes up to which work has threads apart from larger work
MAX_WORKERS = 2  # threads for medium work, and as many for large work
MAX_WAITERS = 16  # threads that wait for other processes and files
MAX_SEEING = 4  # threads that wait for images and sounds to be decoded and encoded
MAX_FETCHING = 4  # threads that fetch images from other hosts
MAX_QUEUED = 8  # calls that wait for either

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


class _Line:
    """Threads for work of one kind, with few places in a queue before them.

    Args:
        name: begins the names of the threads.
        n_threads: threads.
        n_queued: calls that wait for them.
        problem: the error of a call that finds no place.
    """

    def __init__(self, name: str, n_threads: int, n_queued: int, problem: str) -> None:
        self._threads = ThreadPoolExecutor(n_threads, name)
        self._places = threading.Semaphore(n_threads + n_queued)
        self._problem = problem

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of a call in a thread.

        A cancellation cancels ``REQUEST_CANCELLED`` of the call. One that is cancelled before its turn is skipped, but
        keeps its place, since the queue holds its arguments.

        Raises HTTPException if there is no place.
        """
        if not self._places.acquire(blocking=False):
            raise HTTPException(503, f"{self._problem}; try again later")
        result: Future[T] = Future()
        cancelled: Future[None] = Future()

        def work() -> None:
            try:
                if result.set_running_or_notify_cancel():
                    REQUEST_CANCELLED.set(cancelled)
                    result.set_result(function(*arguments, **options))
            except BaseException as error:
                result.set_exception(error)
            finally:
                self._places.release()

        self._threads.submit(contextvars.copy_context().run, work)
        try:
            return await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            cancelled.cancel()
            raise


seeing = _Line("pumice-images", MAX_SEEING, MAX_QUEUED, "too many requests with images or sound wait")
"""Does work with images and sounds: decoding and encoding, of which a cancelled call begins no further one."""

fetching = _Line("pumice-fetch", MAX_FETCHING, MAX_QUEUED, "too many requests wait for images of other hosts")
"""Fetches images."""


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    work = partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(pool, work)
