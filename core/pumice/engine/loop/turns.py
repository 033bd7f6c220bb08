"""Turns of the kinds of work that cannot share a step, such as generation and embeddings."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from pumice.engine.requests.job import Active

BACKGROUND = 0.1
"""Weight of a client beside others of a higher priority."""


class Turns:
    """Divides the work of a device between kinds by their weights (stride scheduling, Waldspurger 1995).

    Work is counted in rows (``SchedulingPolicy.cost``), so that the order of steps is the same each time.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}  # cost by weight
        self._working: set[str] = set()  # the kinds that have work

    def next(self, weights: Mapping[str, float]) -> str:
        """Return the kind whose turn it is, of those that have work."""
        self._meet(weights)
        return min(weights, key=lambda kind: self._used[kind])

    def took(self, kind: str, cost: float, weights: Mapping[str, float]) -> None:
        """Record the cost of a step of a kind, while these had work."""
        self._meet(weights)
        if kind in weights:
            self._used[kind] += cost / weights[kind]

    def _meet(self, weights: Mapping[str, float]) -> None:
        """Let kinds begin beside those that go on: nothing was saved without work, and nothing owed is forgotten."""
        least = min((self._used[kind] for kind in weights if kind in self._working), default=None)
        if least is None:
            least = max(self._used.values(), default=0.0)
        for kind in weights.keys() - self._working:
            self._used[kind] = max(self._used.get(kind, 0.0), least)
        self._working = set(weights)


def weights_of(active: Sequence[Active]) -> dict[str, float]:
    """Return the weights of the kinds of sequences with a place.

    Clients weigh the same, whose requests share their weight; those below the highest priority weigh a tenth.
    """
    highest = max((item.priority for item in active), default=0)
    clients: dict[Hashable, dict[tuple[str, Hashable], float]] = {}
    for item in active:
        name = item.job.request_name
        requests = clients.setdefault(item.job.client or name, {})
        requests[item.job.kind, name] = 1.0 if item.priority == highest else BACKGROUND
    weights: dict[str, float] = {}
    for requests in clients.values():
        for (kind, _), weight in requests.items():
            weights[kind] = weights.get(kind, 0.0) + weight / len(requests)
    return weights
