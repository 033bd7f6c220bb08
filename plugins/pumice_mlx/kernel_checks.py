"""Checks of kernels when a model is loaded: one is used only if its results are right on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger("pumice")


def is_right(task: str, error: Callable[[], float], most: float = 0.0) -> bool:
    """Return True if a kernel's results are wrong by at most ``most``; else log that it is not used, and why.

    Args:
        task: what the kernel does, such as "multiplies few rows".
        error: runs the kernel, and returns the largest error of its results.
        most: largest error of a kernel that is right.
    """
    try:
        largest = error()
    except (RuntimeError, ValueError, TypeError) as failure:
        logger.info("mlx: no kernel %s: %s", task, failure)
        return False
    if largest <= most:  # False for NaN
        return True
    logger.info("mlx: the kernel that %s is not used, since its results are wrong by %.1e", task, largest)
    return False
