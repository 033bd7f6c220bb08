"""How a device starts the operations of a segment: fused groups, or one dispatch for a whole token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pumice.plugin.unstable import Launches, Node, Segment
from pumice_vulkan.fuse import DEFERRED, GROUP, fuse
from pumice_vulkan.persistent import Decoder, find_decoder

_WITH_NEXT = [["rms_norm"], ["get_rows"]]  # groups of one dispatch that are computed with the next one
_WITH_LAST = "expert_sum"  # ... and an operation whose group is computed with the one before


def launches_of(segment: Segment, joins: Callable[[Decoder], bool]) -> Launches:
    """Return the groups of a segment; ``joins`` says if a decoder's tokens are one dispatch."""
    fused = fuse(segment)
    groups = [
        node.attrs["group"].nodes if node.op == GROUP else [node]
        for node in fused.nodes
        if node.op not in (DEFERRED, "reshape")
    ]
    decoder = find_decoder(fused)
    return Launches(groups, _joined(groups) if decoder is not None and joins(decoder) else ())


def _joined(groups: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Return the groups between two exchanges of all workgroups."""
    joined: list[list[Node]] = []
    ahead: list[Node] = []  # of the next group
    for group in groups:
        ops = [node.op for node in group]
        if ops in _WITH_NEXT:
            ahead += group
        elif _WITH_LAST in ops and joined:
            joined[-1] += group
        else:
            joined.append([*ahead, *group])
            ahead = []
    return joined
