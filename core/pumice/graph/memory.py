"""The memory pass: a place in one arena for every value of a segment, shared by values never alive together."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.graph.place import Segment
from pumice.graph.tensor import Tensor, concrete

ALIGNMENT = 256  # bytes; what the strictest GPUs ask of a buffer offset


@dataclass
class MemoryPlan:
    """``offsets`` in bytes into an arena of ``size`` bytes; every float32 and int32 value takes 4 bytes an element."""

    size: int
    offsets: dict[Tensor, int]


@dataclass
class _Lifetime:
    size: int
    first: int
    last: int
    offset: int = 0

    def overlaps(self, other: _Lifetime) -> bool:
        in_time = self.first <= other.last and other.first <= self.last
        return in_time and self.offset < other.offset + other.size and other.offset < self.offset + self.size


def plan_memory(segment: Segment, n_tokens: int, n_outputs: int) -> MemoryPlan:
    """Place the segment's inputs and results for steps of at most ``n_tokens`` and ``n_outputs`` rows.

    Largest first, each at the lowest offset where nothing alive at the same time lies (Pisarchyk and Lee
    2020, arXiv:2001.03288, greedy by size). A reshape shares the place of what it reshapes.
    """
    roots = _roots(segment)
    lifetimes = _lifetimes(segment, roots, n_tokens, n_outputs)
    placed: list[_Lifetime] = []
    for life in sorted(lifetimes.values(), key=lambda life: -life.size):
        neighbours = [p for p in placed if life.first <= p.last and p.first <= life.last]
        for candidate in sorted([0] + [p.offset + p.size for p in neighbours]):
            life.offset = candidate
            if not any(life.overlaps(p) for p in neighbours):
                break
        placed.append(life)
    size = max((life.offset + life.size for life in placed), default=0)
    return MemoryPlan(size, {tensor: lifetimes[root].offset for tensor, root in roots.items()})


def _roots(segment: Segment) -> dict[Tensor, Tensor]:
    """Each value's storage: itself, or the storage of what it reshapes."""
    roots: dict[Tensor, Tensor] = {tensor: tensor for tensor in segment.inputs}
    for node in segment.nodes:
        reshaped = node.inputs[0] if node.op == "reshape" else None
        roots[node.output] = node.output if reshaped is None else roots[reshaped]
    return roots


def _lifetimes(segment: Segment, roots: dict[Tensor, Tensor], n_tokens: int, n_outputs: int) -> dict[Tensor, _Lifetime]:
    end = len(segment.nodes)
    lives: dict[Tensor, _Lifetime] = {}

    def touch(tensor: Tensor, time: int) -> None:
        root = roots[tensor]
        if root not in lives:
            lives[root] = _Lifetime(_bytes(root, n_tokens, n_outputs), time, time)
        lives[root].last = max(lives[root].last, time)

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


def _bytes(tensor: Tensor, n_tokens: int, n_outputs: int) -> int:
    size = 4
    for dim in concrete(tensor.shape, n_tokens, n_outputs):
        size *= dim
    return -(-size // ALIGNMENT) * ALIGNMENT
