"""Requests go to the replica with the longest beginning of their prompt in its cache, unless it is busy."""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pumice.engine.messages import Add, Request
from pumice.process.codec import decode_command
from pumice_ray.prefixes import Prefixes

_SOME = 8  # replicas of which one with the fewest requests is taken: of all, those that route apart took the same
_LOST_SECONDS = 2.0  # in which a replica has a request that was sent, unless it was cancelled


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Serve asks it for candidates, and takes one of the first group that has room.

    Serve knows of a request when its replica has said how many it has. Those on their way are counted here, since
    many may come at once.
    """

    def initialize_state(self, n_parallel: int, most: int, by_prefix: bool = True) -> None:
        """``n_parallel``: sequences that a replica computes at once; one with as many requests is busy.

        ``most``: calls of a replica, of which there must be fewer than it takes, so that who listens has a place.
        """
        self._most = most
        self._n_parallel = n_parallel
        self._by_prefix = by_prefix
        self._prefixes = Prefixes()
        self._on_their_way: defaultdict[ReplicaID, deque[float]] = defaultdict(deque)  # when each was sent

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        asked = _asked(pending_request)
        if isinstance(asked, str):
            meant = [each for each in candidate_replicas if each.replica_id.unique_id == asked]
            return [meant or candidate_replicas]
        candidate_replicas = [each for each in candidate_replicas if self._in_hand(each) < self._most]
        if not candidate_replicas:
            return []  # Serve asks again in a while
        some = random.sample(candidate_replicas, min(_SOME, len(candidate_replicas)))
        group = (self._holders(asked, candidate_replicas) if isinstance(asked, Request) else []) or some
        chosen = min(group, key=self._in_hand)
        self._on_their_way[chosen.replica_id].append(time.monotonic())
        return [[chosen], some, candidate_replicas]

    def _holders(self, request: Request, replicas: list[RunningReplica]) -> list[RunningReplica]:
        """Those with the longest beginning of its prompt that are not busy; none where nobody has any of it."""
        if not self._by_prefix:
            return []
        by_id = {replica.replica_id: replica for replica in replicas}
        depth, holders = self._prefixes.holders(request.prompt, request.cache_salt, by_id)
        return [by_id[id] for id in holders if self._in_hand(by_id[id]) <= self._n_parallel] if depth else []

    def _in_hand(self, replica: RunningReplica) -> int:
        """Calls, as far as is known: requests, and one to listen to them."""
        known = self._replica_queue_len_cache.get(replica.replica_id) or 0
        coming = self._on_their_way[replica.replica_id]
        while coming and coming[0] < time.monotonic() - _LOST_SECONDS:
            coming.popleft()
        return known + len(coming)

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """It was counted when it was chosen."""

    def on_new_queue_len_info(self, replica_id: ReplicaID, num_ongoing_requests: int) -> None:
        """A request has arrived."""
        super().on_new_queue_len_info(replica_id, num_ongoing_requests)
        if self._on_their_way[replica_id]:
            self._on_their_way[replica_id].popleft()

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        asked = _asked(pending_request)
        if isinstance(asked, Request):
            self._prefixes.add(asked.prompt, asked.cache_salt, replica_id)


def _asked(pending: PendingRequest | None) -> Request | str | None:
    """What a call asks for: a request, or to listen to the replica of that name."""
    asked = pending.args[0] if pending and pending.args else None
    if isinstance(asked, bytes):
        command = decode_command(asked)
        return command.request if isinstance(command, Add) else None
    return asked if isinstance(asked, str) else None
