"""Work of requests beside the event loop: others are answered meanwhile, and few threads need little memory."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 4 << 10  # bytes with which work takes less than going to another thread and back
MEDIUM = 256 << 10  # bytes with which work has threads of its own, which no large work keeps
MAX_WORKERS = 2  # requests with so much work that are worked on at once, and as many with more
MAX_WAITERS = 16  # requests that wait at once for what other processes do: templates, files

_workers, _large = ThreadPoolExecutor(MAX_WORKERS, "pumice-work"), ThreadPoolExecutor(MAX_WORKERS, "pumice-large")
_waiters = ThreadPoolExecutor(MAX_WAITERS, "pumice-wait")


async def aside(function: Callable[..., T], *arguments: Any, size: int = MEDIUM) -> T:
    """The result of work on about ``size`` bytes: in a thread, unless that is little.

    Where the request is cancelled before its turn, nothing is done.
    """
    if size <= SMALL:
        return function(*arguments)
    return await _run(_workers if size <= MEDIUM else _large, function, *arguments)


async def waiting(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of what mostly waits for others, in a thread."""
    return await _run(_waiters, function, *arguments, **options)


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    work = partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(pool, work)
