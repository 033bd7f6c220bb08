"""Recurrent states of steps with drafts: they stay as they were until the tokens are verified, and read the right ones.

The kernels of the states run twice in such a step: for results without storing states, and once the number of right
tokens is known for states without results. What they read the second time lies beside the other activations.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import accumulate

from pumice.plugin import BackendError, Tensor, Weight
from pumice.plugin.unstable import MemoryPlan, Node, RecurrentState, Segment
from pumice_vulkan.fuse import parts
from pumice_vulkan.lower.rule import Lowering, SegmentMemory
from pumice_vulkan.memory import ALIGNMENT, BufferSlice

logger = logging.getLogger("pumice")

UNSETTLED = {"ssm_scan": ("c",), "linear_attention": ("q",)}
"""Operands of an operation on which its results depend, but not its state."""


def recurrent_nodes(segment: Segment) -> list[Node]:
    """Return the nodes of a segment that have recurrent states."""
    return [node for node in parts(segment) if isinstance(node.state, RecurrentState)]


def state_inputs(segment: Segment, plan: MemoryPlan) -> list[list[Tensor]] | None:
    """Return the values on which recurrent states depend, each with its reshapes, which share its place.

    None if one of them is an input or an output of the segment, whose place is fixed.
    """
    roots: dict[Tensor, Tensor] = {}
    for node in parts(segment):
        source = node.inputs["x"] if node.op == "reshape" else node.output
        roots[node.output] = roots.get(source, source)
    needed: dict[Tensor, list[Tensor]] = {
        roots.get(tensor, tensor): []
        for node in recurrent_nodes(segment)
        for name, tensor in node.inputs.items()
        if name not in UNSETTLED.get(node.op, ()) and not isinstance(tensor, Weight)
    }
    if any(roots.get(tensor, tensor) in needed for tensor in (*segment.inputs, *segment.outputs)):
        return None
    for tensor in plan.offsets:
        if (root := roots.get(tensor, tensor)) in needed:
            needed[root].append(tensor)
    return list(needed.values())


def settled_places(memory: SegmentMemory, segment: Segment, n_rows: int) -> Mapping[Tensor, BufferSlice]:
    """Return places of these values for steps with drafts of up to ``n_rows`` rows; none if there is no room."""
    values = state_inputs(segment, memory.plan)
    if not values or n_rows < 2:
        return {}
    lowering = Lowering(memory, n_rows, n_rows)
    sizes = [lowering.rows(same[0]) * lowering.width(same[0]) for same in values]
    starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    try:
        room = lowering.scratch("inputs of recurrent states", 4 * starts[-1])
    except BackendError as error:
        logger.info("vulkan: no drafts are verified on the device: %s", error)
        return {}
    places = [room.part(start, size) for start, size in zip(starts, sizes, strict=False)]
    return {tensor: place for same, place in zip(values, places, strict=True) for tensor in same}
