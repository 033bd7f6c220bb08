"""Callbacks that delay an event loop, by the processor time of their thread alone.

Other work on the machine makes none of them longer.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, thread_time
from typing import Any, NamedTuple

from waiting import PATIENCE, slowness

LIMIT = 0.010  # seconds of the reference processor


class Held(NamedTuple):
    """A callback of an event loop, what it was, and its seconds, in those of the reference processor."""

    what: str
    seconds: float


@contextmanager
def monitored() -> Iterator[list[Held]]:
    """The callbacks of all event loops of this process that held theirs for longer than ``LIMIT``."""
    found: list[Held] = []
    run, slow = asyncio.Handle._run, slowness()

    def timed(handle: Any) -> None:
        began = thread_time()
        run(handle)
        spent = (thread_time() - began) / slow
        if spent > LIMIT:
            found.append(Held(_describe(handle), spent))

    asyncio.Handle._run = timed
    gc.collect()
    gc.disable()  # it looks at all objects of the tests, in whichever thread makes the next one
    try:
        yield found
    finally:
        gc.enable()
        asyncio.Handle._run = run


def held_at_best(act: Callable[[], object], limit: float = LIMIT, what: str = "") -> list[Held]:
    """What held event loops for longer than ``limit`` during an action, of callbacks whose description has ``what``.

    The action is repeated until nothing does or patience ends: a cache may be cold, and a clock may jump.
    """
    deadline = monotonic() + PATIENCE
    while True:
        with monitored() as found:
            act()
        held = [each for each in found if each.seconds > limit and what in each.what]
        if not held or monotonic() > deadline:
            return held


def _describe(handle: Any) -> str:
    """A callback; of a task its coroutine, and the line that it waits in by now."""
    task = getattr(handle._callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return repr(handle._callback)
    stack = [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in task.get_stack()]
    return f"{task.get_coro()!r} {' > '.join(_awaited(task)) or stack}"


def _awaited(task: asyncio.Task) -> list[str]:
    """The coroutines that a task is in, from the outermost on."""
    coroutine, found = task.get_coro(), []
    while coroutine is not None and getattr(coroutine, "cr_frame", None) is not None:
        found.append(f"{coroutine.__qualname__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return found
