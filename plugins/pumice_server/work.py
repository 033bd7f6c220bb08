"""Run work of requests in a few threads, off the event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 4 << 10  # bytes up to which work is cheaper than a switch of threads
MEDIUM = 256 << 10  # bytes up to which work has threads apart from larger work
MAX_WORKERS = 2  # threads for medium work, and as many for large work
MAX_WAITERS = 16  # threads that wait for other processes and files

MAX_SEEING = 2  # threads that wait for images to be decoded and encoded

_seeing = ThreadPoolExecutor(MAX_SEEING, "pumice-images")
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
    """Return the result of work with images, done in a thread."""
    return await _run(_seeing, function, *arguments, **options)


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    work = partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(pool, work)
