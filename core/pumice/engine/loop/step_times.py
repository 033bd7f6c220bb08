"""Estimates of how long steps take that a backend prepares for fixed numbers of tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

_SLOWER = 1.35  # longest expected time of a step of a measured size, relative to the limit
_UNKNOWN = 2.0  # the same for a size that was not measured: twice the tokens take at most twice as long


class StepTimes:
    """Times of steps by size, where a step takes as long as the next larger of ``sizes``, whatever it contains.

    The relative cost of a size is kept for good, and the speed of the device is that of the last steps, since its clock
    changes: it is four times lower after a pause.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sorted(sizes)
        self._costs: dict[int, float] = {}  # of measured sizes, in tokens of the size that was measured first
        self._speeds: deque[float] = deque(maxlen=3)  # seconds per cost; the first step of a size may be slow

    def took(self, n_tokens: int, seconds: float) -> None:
        """Record the seconds of a step."""
        size = self._size(n_tokens)
        if size not in self._costs and self._speeds:
            self._costs[size] = min(self._linear(size), seconds / min(self._speeds))
        self._speeds.append(seconds / self._costs.setdefault(size, float(size)))

    def largest(self, limit: float, least: int) -> int:
        """Return the largest size of at least ``least`` tokens whose step is expected to take about ``limit`` seconds.

        The smallest such size if all take longer, or if no step was recorded.
        """
        sizes = self._sizes[min(bisect_left(self._sizes, least), len(self._sizes) - 1) :]
        return next((size for size in reversed(sizes) if self._is_within(limit, size)), sizes[0])

    def _is_within(self, limit: float, size: int) -> bool:
        if not self._speeds:
            return False
        seconds = min(self._speeds) * self._costs.get(size, self._linear(size))
        return seconds <= limit * (_SLOWER if size in self._costs else _UNKNOWN)

    def _size(self, n_tokens: int) -> int:
        return self._sizes[min(bisect_left(self._sizes, n_tokens), len(self._sizes) - 1)]

    def _linear(self, size: int) -> float:
        """Return the cost of a size that grows with its tokens from the next smaller measured one, or else a larger."""
        smaller = max((other for other in self._costs if other < size), default=0)
        other = smaller or min((other for other in self._costs if other > size), default=0)
        return self._costs[other] * size / other if other else float(size)
