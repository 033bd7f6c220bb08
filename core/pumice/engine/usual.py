"""The usual value of a measurement that other programs on the machine may lengthen."""

from __future__ import annotations

from collections import deque

KEPT = 8  # latest measurements of a kind


class Usual:
    """The lower third of the latest measurements of one kind."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)
        self.value = 0.0

    @property
    def is_first(self) -> bool:
        """True after a single measurement, which may contain work that is done once."""
        return len(self._latest) == 1

    @property
    def n_latest(self) -> int:
        """Number of the measurements that are kept."""
        return len(self._latest)

    def add(self, measured: float) -> None:
        self._latest.append(measured)
        self.value = sorted(self._latest)[len(self._latest) // 3]
