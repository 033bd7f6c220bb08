"""Run work on the bodies of requests off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pumice_server.pools import BODIES, LARGE_BODIES

T = TypeVar("T")

SMALL = 4 << 10  # bytes up to which work is cheaper than a switch of threads
MEDIUM = 256 << 10  # bytes up to which work has threads apart from larger work


async def aside(function: Callable[..., T], *arguments: Any, size: int = MEDIUM) -> T:
    """Return the result of work on about ``size`` bytes, done in a thread unless it is small.

    If the request is cancelled before its turn, the work is skipped.
    """
    if size <= SMALL:
        return function(*arguments)
    return await (BODIES if size <= MEDIUM else LARGE_BODIES)(function, *arguments)
