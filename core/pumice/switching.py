"""Switches of Python's interpreter: how often threads take turns, and when garbage is collected."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

SWITCH_SECONDS = 100e-6
"""Time in which another thread takes Python's lock.

A step is recorded in hundreds of calls that release it: with the usual 5 ms, first steps of llama-1b took 26 and 37 ms
on an H200, while a thread decoded 64 requests, instead of 5.
"""


@contextlib.contextmanager
def frequent_switches() -> Iterator[None]:
    """Let Python's threads take turns after ``SWITCH_SECONDS``, or less if they do already."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_SECONDS, usual))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Let Python collect no garbage within this context, in which nearly all new objects stay."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
