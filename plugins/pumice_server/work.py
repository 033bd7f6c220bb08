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
MAX_WORKERS = 4  # requests whose bytes are worked on at once
MAX_WAITERS = 16  # requests that wait at once for what other processes do: templates, files

_workers = ThreadPoolExecutor(MAX_WORKERS, "pumice-work")
_waiters = ThreadPoolExecutor(MAX_WAITERS, "pumice-wait")


async def aside(function: Callable[..., T], *arguments: Any, size: int = SMALL + 1) -> T:
    """The result of work on about ``size`` bytes: in a thread, unless that is little.

    Where the request is cancelled before its turn, nothing is done.
    """
    return function(*arguments) if size <= SMALL else await _run(_workers, function, *arguments)


async def waiting(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of what mostly waits for others, in a thread."""
    return await _run(_waiters, function, *arguments, **options)


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    work = partial(contextvars.copy_context().run, function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(pool, work)
