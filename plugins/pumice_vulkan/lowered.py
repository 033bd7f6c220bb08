"""The dispatches of a segment: lowered for each bucket when they are first needed, or in pieces beside steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pumice.plugin.unstable import Node, Segment
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.lower.rule import Dispatch, Lowering, SegmentMemory, StateUse
from pumice_vulkan.preparer import Work
from pumice_vulkan.settling import recurrent_nodes
from pumice_vulkan.shared import Shared
from pumice_vulkan.step import ZERO, size_words
from pumice_vulkan.warming import MEASURED, ONE_TILE, ROOM_BYTES, displaces, warmed

PIECE = 8  # nodes lowered at a time, before other threads may run


class LoweredSegment:
    """Lowers a segment for the buckets that its steps need, each once.

    Args:
        shared: what the programs of the device share.
        memory: the segment's memory.
        segment: the segment.
        weights_nbytes: bytes of the weights that its steps read.

    Attributes:
        shared: what the programs of the device share.
        recurrent: nodes with recurrent states.
    """

    def __init__(self, shared: Shared, memory: SegmentMemory, segment: Segment, weights_nbytes: int) -> None:
        self.recurrent = recurrent_nodes(segment)
        self.shared = shared
        self._memory = memory
        self._segment = segment
        self._weights_nbytes = weights_nbytes
        self._done: dict[tuple[Bucket, StateUse], list[Dispatch]] = {}

    def dispatches(self, bucket: Bucket, use: StateUse = StateUse.ADVANCE) -> list[Dispatch]:
        """Return the dispatches of a step, or those that settle its recurrent states."""
        if (bucket, use) not in self._done:
            lowering = Lowering(self._memory, *bucket, use=use)
            for node in self.recurrent if use is StateUse.SETTLE else self._segment.nodes:
                self._lower(lowering, [node])
            self._finish(bucket, lowering)
        return self._done[bucket, use]

    def _lower(self, lowering: Lowering, nodes: Sequence[Node]) -> None:
        with self.shared.making:
            for node in nodes:
                lowering.lower(node)

    def _finish(self, bucket: Bucket, lowering: Lowering) -> None:
        """Store the dispatches of a bucket, unless another thread was faster."""
        with self.shared.making:
            self.shared.weights.finish()
        self._done.setdefault((bucket, lowering.use), self._with_instructions(bucket, lowering.dispatches))

    def _with_instructions(self, bucket: Bucket, dispatches: list[Dispatch]) -> list[Dispatch]:
        """Return the dispatches of a bucket, with copies that fetch instructions ahead where that is faster."""
        has_zero = ZERO not in size_words(self._memory.limits).values()
        if not (
            bucket.lone and bucket.n_tokens in MEASURED and has_zero and displaces(dispatches, self._weights_nbytes)
        ):
            return dispatches
        room = self._memory.scratch.take("fetched instructions", ROOM_BYTES)
        with self.shared.making:
            (routes,) = self.shared.weights.put("routes of fetched instructions", lambda: [ONE_TILE])
            self.shared.weights.finish()
        return warmed(dispatches, room, routes)

    def pieces(self, bucket: Bucket, use: StateUse = StateUse.ADVANCE) -> Iterator[Work]:
        """Yield the work that lowers a bucket, unless it is done."""
        if (bucket, use) not in self._done:
            lowering = Lowering(self._memory, *bucket, uploads=False, use=use)
            for first in range(0, len(self._segment.nodes), PIECE):
                yield partial(self._lower, lowering, self._segment.nodes[first : first + PIECE])
            yield partial(self._finish, bucket, lowering)
