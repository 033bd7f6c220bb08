"""Plan memory: an offset in one arena for every value of a segment, shared by values that are never alive together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from pumice.graph.place import Segment
from pumice.graph.shape import Sizes, concrete
from pumice.graph.tensor import Tensor

ALIGNMENT = 256  # bytes; the largest alignment of buffer offsets that GPUs require


@dataclass
class MemoryPlan:
    """Offsets in bytes into an arena of ``size`` bytes; float32 and int32 values take 4 bytes per element."""

    size: int
    offsets: dict[Tensor, int]


@dataclass
class _Lifetime:
    size: int
    first: int
    last: int
    offset: int = 0


def plan_memory(segment: Segment, sizes: Sizes) -> MemoryPlan:
    """Plan the segment's inputs and results for steps with at most these sizes.

    Largest values first, each gets the lowest offset that is free during its lifetime (Pisarchyk and Lee 2020,
    arXiv:2001.03288, greedy by size). A reshape shares its operand's memory. The operand of a slice stays alive as long
    as the slice, which may be read in place.
    """
    roots = _roots(segment)
    lifetimes = _lifetimes(segment, roots, sizes)
    placed: list[_Lifetime] = []
    for life in sorted(lifetimes.values(), key=lambda life: -life.size):
        life.offset = _lowest_gap(life.size, [p for p in placed if life.first <= p.last and p.first <= life.last])
        insort(placed, life, key=lambda p: p.offset)
    size = max((life.offset + life.size for life in placed), default=0)
    return MemoryPlan(size, {tensor: lifetimes[root].offset for tensor, root in roots.items()})


def _lowest_gap(size: int, occupied: Sequence[_Lifetime]) -> int:
    """Return the lowest offset with ``size`` free bytes beside those that are ``occupied``, in order of offsets."""
    end = 0
    for other in occupied:
        if other.offset >= end + size:
            break
        end = max(end, other.offset + other.size)
    return end


def _roots(segment: Segment) -> dict[Tensor, Tensor]:
    """Map each value to its storage: itself, or the storage of the value that it reshapes."""
    roots: dict[Tensor, Tensor] = {tensor: tensor for tensor in segment.inputs}
    for node in segment.nodes:
        roots[node.output] = roots[node.inputs["x"]] if node.op == "reshape" else node.output
    return roots


def _lifetimes(segment: Segment, roots: dict[Tensor, Tensor], sizes: Sizes) -> dict[Tensor, _Lifetime]:
    end = len(segment.nodes)
    lives: dict[Tensor, _Lifetime] = {}
    slices = [node for node in segment.nodes if node.op == "slice" and node.inputs["x"] in roots]
    sliced = {node.output: roots[node.inputs["x"]] for node in slices}

    def touch(tensor: Tensor, time: int) -> None:
        root = roots[tensor]
        if root not in lives:
            lives[root] = _Lifetime(_bytes(root, sizes), time, time)
        lives[root].last = max(lives[root].last, time)
        if root in sliced:
            touch(sliced[root], time)

    for tensor in segment.inputs:
        touch(tensor, -1)
    for time, node in enumerate(segment.nodes):
        for operand in node.operands():
            if operand in roots:
                touch(operand, time)
        touch(node.output, time)
    for tensor in segment.outputs:
        touch(tensor, end)
    return lives


def _bytes(tensor: Tensor, sizes: Sizes) -> int:
    size = 4
    for dim in concrete(tensor.shape, sizes):
        size *= dim
    return -(-size // ALIGNMENT) * ALIGNMENT
