"""Requests go to the replica with the longest beginning of their prompt in its cache, unless it is busy."""

from __future__ import annotations

import random
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pumice.engine.messages import Request
from pumice_ray.outbox import Listen
from pumice_ray.prefixes import Prefixes


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Serve asks it for candidates, and takes of the first group that has room the one with the shortest queue.

    Many requests at once are routed before Serve has sent the first: each is counted here when it is.
    """

    def initialize_state(self, n_parallel: int, by_prefix: bool = True) -> None:
        """``n_parallel``: sequences that a replica computes at once; one with as many requests is busy."""
        self._n_parallel = n_parallel
        self._by_prefix = by_prefix
        self._prefixes = Prefixes()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        two = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        asked = _asked(pending_request)
        if isinstance(asked, Listen):
            meant = [each for each in candidate_replicas if each.replica_id.unique_id == asked.replica]
            return [meant or candidate_replicas]
        group = (self._holders(asked, candidate_replicas) if isinstance(asked, Request) else []) or two
        chosen = min(group, key=self._in_hand)
        self._replica_queue_len_cache.update(chosen.replica_id, self._in_hand(chosen) + 1)
        return [[chosen], two, candidate_replicas]

    def _holders(self, request: Request, replicas: list[RunningReplica]) -> list[RunningReplica]:
        """Those with the longest beginning of its prompt that are not busy; none where nobody has any of it."""
        if not self._by_prefix:
            return []
        by_id = {replica.replica_id: replica for replica in replicas}
        depth, holders = self._prefixes.holders(request.prompt, request.cache_salt, by_id)
        return [by_id[id] for id in holders if self._in_hand(by_id[id]) <= self._n_parallel] if depth else []

    def _in_hand(self, replica: RunningReplica) -> int:
        """Calls, as far as is known: requests, and one to listen to them."""
        return self._replica_queue_len_cache.get(replica.replica_id) or 0

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        asked = _asked(pending_request)
        if isinstance(asked, Request):
            self._prefixes.add(asked.prompt, asked.cache_salt, replica_id)


def _asked(pending: PendingRequest | None) -> Any:
    """The first argument of a call."""
    return pending.args[0] if pending and pending.args else None
