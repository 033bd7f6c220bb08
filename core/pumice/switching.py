"""Switches of Python's interpreter: how often threads take turns, and when garbage is collected."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator

COLLECTED = 10_000
"""Objects between two collections of garbage: Python's 700 take a tenth of the time of imports and of generating."""

SWITCH_SECONDS = 100e-6
"""Time in which another thread takes Python's lock.

A step is recorded in hundreds of calls that release it: with the usual 5 ms, first steps of llama-1b took 26 and 37 ms
on an H200, while a thread decoded 64 requests, instead of 5.
"""

_OWN_FROZEN = 1_000  # objects that Python itself leaves out of collections (375 in 3.12); more are a program's choice
_program_froze = threading.Event()  # remembered: Python counts them one by one, millions in a tenth of a second
_changing = threading.Lock()  # guards the two below
_usual_seconds = 0.0  # before the first of the contexts that are open
_n_frequent = 0  # contexts that are open, in any thread


@contextlib.contextmanager
def frequent_switches() -> Iterator[None]:
    """Let Python's threads take turns after ``SWITCH_SECONDS``, or less if they do already.

    Contexts of several threads may overlap; the usual time returns with the end of the last.
    """
    global _usual_seconds, _n_frequent
    with _changing:
        if not _n_frequent:
            _usual_seconds = sys.getswitchinterval()
            sys.setswitchinterval(min(SWITCH_SECONDS, _usual_seconds))
        _n_frequent += 1
    try:
        yield
    finally:
        with _changing:
            _n_frequent -= 1
            if not _n_frequent:
                sys.setswitchinterval(_usual_seconds)


@contextlib.contextmanager
def without_collections(*, makes_old: bool = False) -> Iterator[None]:
    """Let Python collect no garbage within this context, in which nearly all new objects stay.

    With ``makes_old`` they count as old behind it, since else the next collection would walk through all of them: 26 ms
    after a load on an H200's machine. Their garbage then waits for a full collection.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if makes_old and not _has_frozen():
                gc.freeze()
                gc.unfreeze()  # moves them to the oldest generation
            gc.enable()


def _has_frozen() -> bool:
    """Return True if this program has left objects of its own out of collections, now or at an earlier call."""
    if not _program_froze.is_set() and gc.get_freeze_count() >= _OWN_FROZEN:
        _program_froze.set()
    return _program_froze.is_set()
