"""Requests go to the replica with the longest beginning of their prompt in its cache, unless it is busy."""

from __future__ import annotations

import random
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pumice.engine.messages import Request
from pumice_ray.prefixes import Prefixes


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Serve asks it for candidates, and takes of the first group that has room the one with the shortest queue."""

    def initialize_state(self, n_parallel: int, by_prefix: bool = True) -> None:
        """``n_parallel``: sequences that a replica computes at once; one with as many requests is busy."""
        self._n_parallel = n_parallel
        self._by_prefix = by_prefix
        self._prefixes = Prefixes()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        two = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        request = _request_of(pending_request)
        if request is None or not self._by_prefix:
            return [two, candidate_replicas]
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        depth, holders = self._prefixes.holders(request.prompt, request.cache_salt, by_id)
        free = [by_id[id] for id in holders if (self._replica_queue_len_cache.get(id) or 0) < self._n_parallel]
        return [free, two, candidate_replicas] if depth and free else [two, candidate_replicas]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        request = _request_of(pending_request)
        if request is not None:
            self._prefixes.add(request.prompt, request.cache_salt, replica_id)


def _request_of(pending: PendingRequest | None) -> Request | None:
    """What is to be generated, if anything is."""
    first = pending.args[0] if pending and pending.args else None
    return first if isinstance(first, Request) else None
