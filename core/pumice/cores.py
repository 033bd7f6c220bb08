"""Cores of the processor that this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """How many there are: at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
