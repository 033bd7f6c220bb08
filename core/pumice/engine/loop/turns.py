"""Turns of the kinds of work that cannot share a step, such as generation and embeddings."""

from __future__ import annotations

from collections.abc import Mapping


class Turns:
    """Divides the time of a device between kinds of work by their weights (stride scheduling, Waldspurger 1995).

    The order of steps depends on their measured times; the results of a step do not depend on the order.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}  # seconds by weight of the kinds that had work at the last choice

    def next(self, weights: Mapping[str, float]) -> str:
        """Return the kind whose turn it is, of those that have work; a new one is next but has saved no time."""
        known = {kind: self._used[kind] for kind in weights if kind in self._used}
        least = min(known.values(), default=0.0)
        self._used = {kind: known.get(kind, least) for kind in weights}
        return min(weights, key=lambda kind: (self._used[kind], kind in known))

    def took(self, kind: str, seconds: float, weight: float) -> None:
        """Record the seconds of a step of a kind."""
        if kind in self._used:
            self._used[kind] += seconds / weight
