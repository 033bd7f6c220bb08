"""A router that sends a request to the idle replica with the longest cached prefix of its prompt."""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pumice.engine.messages import Add, Request
from pumice.process.codec import decode_command
from pumice_server.routing.prefixes import Prefixes

_SOME = 8  # sample size for the least busy replica: choosing from all, independent routers would choose the same
_LOST_SECONDS = 2.0  # time after which a sent request without a report was cancelled


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Serve asks it for candidates and takes one of the first group that has capacity.

    Serve counts a request once its replica has reported its queue length. Requests in transit are counted here, since
    many may arrive at once.
    """

    def initialize_state(self, n_parallel: int, most: int) -> None:
        """Configure the router.

        Args:
            n_parallel: sequences that a replica computes concurrently; with as many requests it counts as busy.
            most: maximum calls of a replica; requests leave at least one call to the event stream.
        """
        self._most = most
        self._n_parallel = n_parallel
        self._prefixes = Prefixes()
        self._on_their_way: defaultdict[ReplicaID, deque[float]] = defaultdict(
            deque
        )  # times at which requests were sent

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        asked = _asked(pending_request)
        if isinstance(asked, str):
            meant = [candidate for candidate in candidate_replicas if candidate.replica_id.unique_id == asked]
            return [meant or candidate_replicas]
        candidate_replicas = [candidate for candidate in candidate_replicas if self._in_hand(candidate) < self._most]
        if not candidate_replicas:
            return []  # Serve retries later
        some = random.sample(candidate_replicas, min(_SOME, len(candidate_replicas)))
        group = (self._holders(asked, candidate_replicas) if isinstance(asked, Request) else []) or some
        chosen = min(group, key=self._in_hand)
        self._on_their_way[chosen.replica_id].append(time.monotonic())
        return [[chosen], some, candidate_replicas]

    def _holders(self, request: Request, replicas: list[RunningReplica]) -> list[RunningReplica]:
        """Return the idle replicas with the longest cached prefix of the prompt; [] if no replica has any of it."""
        by_id = {replica.replica_id: replica for replica in replicas}
        depth, holders = self._prefixes.holders(request.prompt, request.cache_salt, by_id)
        return [by_id[id] for id in holders if self._in_hand(by_id[id]) <= self._n_parallel] if depth else []

    def _in_hand(self, replica: RunningReplica) -> int:
        """Return the known calls of a replica: requests, and an event stream."""
        n_reported = self._replica_queue_len_cache.get(replica.replica_id) or 0
        coming = self._on_their_way[replica.replica_id]
        while coming and coming[0] < time.monotonic() - _LOST_SECONDS:
            coming.popleft()
        return n_reported + len(coming)

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Ignore: the request was counted when its replica was chosen."""

    def on_new_queue_len_info(self, replica_id: ReplicaID, num_ongoing_requests: int) -> None:
        """Drop a request in transit: its replica has reported."""
        super().on_new_queue_len_info(replica_id, num_ongoing_requests)
        if self._on_their_way[replica_id]:
            self._on_their_way[replica_id].popleft()

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        asked = _asked(pending_request)
        if isinstance(asked, Request):
            self._prefixes.add(asked.prompt, asked.cache_salt, replica_id)


def _asked(pending: PendingRequest | None) -> Request | str | None:
    """Return a call's argument: a request, or the name of the replica to stream from."""
    asked = pending.args[0] if pending and pending.args else None
    if isinstance(asked, bytes):
        command = decode_command(asked)
        return command.request if isinstance(command, Add) else None
    return asked if isinstance(asked, str) else None
