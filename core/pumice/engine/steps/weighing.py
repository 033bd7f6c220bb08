"""Weigh the time from one result to the next: what drafts of the host gain or lose beside steps of the program."""

from __future__ import annotations

from typing import NamedTuple

from pumice.engine.host_drafts import Kind
from pumice.engine.speculation import Speculation
from pumice.engine.steps.flight import Flight


class _Weighed(NamedTuple):
    """The parts of a flight that are weighed, without its sequences."""

    kind: Kind | None
    asks: bool
    n_round: int
    behind: bool


class Weighing:
    """Tells ``HostDrafts`` and ``Rounds`` what each flight took."""

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation
        self._latest: _Weighed | None = None  # of the latest flight that has landed
        self._n_started = 0  # sizes of steps, when the latest flight had landed

    def add(self, flight: Flight, n_tokens: int, seconds: float) -> None:
        """Weigh a flight of ``n_tokens`` tokens whose result came ``seconds`` after the one before."""
        kind, latest = flight.kind, self._latest
        self._latest = _Weighed(kind, flight.asks, flight.n_round, flight.behind)
        n_before, self._n_started = self._n_started, self._speculation.n_started
        host, n_seqs = self._speculation.host, len(flight.members)
        if host is None or latest is None or kind is None or kind != latest.kind or not n_tokens:
            return
        if any(running.generation.finish_reason for running, _ in flight.members):
            return
        if not (flight.asks or latest.asks):
            host.ran(kind, n_tokens / n_seqs, seconds)
            return
        is_new, rounds = self._n_started > n_before, self._speculation.rounds
        usual = rounds.usual(kind, flight.n_round) if flight.n_round else None
        host.drafted(kind, len(flight.batch.tokens), n_tokens / n_seqs, seconds, is_new, usual)
        goes_on = flight.behind or (latest.n_round == flight.n_round and not latest.behind)
        if flight.n_round and goes_on and not is_new:  # the first round waits for more
            rounds.took(kind, flight.n_round, seconds)
