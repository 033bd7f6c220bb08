"""What a lowering rule is, and what it works with.

A rule turns a node of the graph into dispatches. Lowering happens once for each *bucket*, a number of tokens that a
command buffer is recorded for (``at.n_tokens``: 1, 2, 4, ...; a step uses the smallest that it fits in), and the
number of output rows (``at.n_outputs``: 1, or as many as there can be)::

    def _silu(at: Lowering, node: Node) -> None:
        (x,) = node.operands()
        rows = at.rows(x)                     # the most rows that x can have in this bucket
        at.dispatch(
            "unary.silu",                     # shaders/spv/unary.silu.spv
            count=x,                          # how many rows there really are: the push constant ``rows``, see below
            reads={"x": at.place(x)},         # ``x_at``, and the buffer of a binding
            writes={"y": at.place(node.output)},
            push={"width": at.width(x), "p": 0.5, "q": 0.0},  # the other push constants
            constants=[256],                  # specialization constants
            grid=(rows, 1, 1),                # workgroups
        )

- **Places** (memory.Place) are ranges of buffers in 32-bit words: ``at.place(tensor)`` of an activation, of the inputs
  ``tokens``, ``positions`` and ``output_ids``, or of a weight as float32; ``at.upload(weight, layout, make)`` of a
  weight in a layout of your own, repacked once; ``at.constant(key, make)`` of a small table; ``at.scratch(name,
  n_bytes)`` of memory that nodes use one after the other; ``at.of_step(word, n)`` of a field of the step block.
  ``at.remembered`` is a dict for what was computed before in this bucket and may be used again, such as the int8
  form of an activation in scratch memory (key it by name; the next node that uses the memory must overwrite the entry).
- **Push constants** are declared in GLSL alone, and go by their names here (interface.py); one that is missing or
  unknown is an error. ``rows`` says how many rows are real: with bit 31 a number, without it the word of the step block
  that has it (``row_count()`` of common.glsl). ``NAME_at`` is the word offset of the place ``NAME`` in ``reads`` or
  ``writes``. A kernel must leave alone what lies beyond the real rows only if it matters to others: every activation
  has room for the largest step, so writing rows beyond the count, up to the bucket, is harmless.
- **Bindings**: 0 is the step block (step.py), then the buffers of places, in the order of their push constants.
- **Barriers** come by themselves, from ``reads`` and ``writes``; dispatches that do not touch each other's places run
  together. A place that is read and written is in both lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Limits, MemoryPlan, Node, State, Tensor, Weight, concrete, row_size
from pumice_vulkan.buckets import bucket_sizes
from pumice_vulkan.device import Buffer, Device
from pumice_vulkan.flags import FIXED
from pumice_vulkan.interface import PLACE, Numbers
from pumice_vulkan.memory import ALIGNMENT, Arena, Part, Place, Weights
from pumice_vulkan.shaders import interface
from pumice_vulkan.step import SIZE_WORDS, StepLayout

Places = Mapping[str, Place | Sequence[Place]]  # what a kernel calls them; several of an array

STEP_INPUTS = ("tokens", "positions", "output_ids")


@dataclass(frozen=True)
class Rule:
    """How nodes of one operation become dispatches."""

    lower: Callable[[Lowering, Node], None]
    claims: Callable[[Node, Limits], bool] = lambda node, limits: True


@dataclass(frozen=True)
class Dispatch:
    """One launch of a kernel, before it is recorded."""

    kernel: str
    constants: tuple[int, ...]
    buffers: tuple[Any, ...]
    push: bytes
    grid: tuple[int, int, int]
    barrier: bool  # before it
    label: str  # for profiles
    full_subgroups: bool = False


@dataclass
class Memory:
    """What all buckets of a program share."""

    device: Device
    limits: Limits
    plan: MemoryPlan
    weights: Weights
    activations: Place
    step: Buffer
    layout: StepLayout
    cache: Arena
    scratch: Arena
    int8: bool = False  # products with few rows take activations in int8
    cooperative: bool = False  # those with many run on matrix units
    named: dict[str, Place] = field(default_factory=dict)  # scratch memory
    states: dict[State, Any] = field(default_factory=dict)  # in ``cache``; graphs of one model share them
    rules: Mapping[str, Rule] = field(default_factory=dict)
    kept: Set[Tensor] = frozenset()  # what must lie where the plan says: it is copied to the host


@dataclass
class Lowering:
    """The lowering of a segment for one bucket."""

    memory: Memory
    n_tokens: int
    n_outputs: int
    lone: bool = False  # each token is the only one of its sequence
    dispatches: list[Dispatch] = field(default_factory=list)
    remembered: dict[Hashable, Any] = field(default_factory=dict)
    _roots: dict[Tensor, Tensor] = field(default_factory=dict)
    _views: dict[Tensor, Place] = field(default_factory=dict)
    _reads: list[Place] = field(default_factory=list)  # since the last barrier
    _writes: list[Place] = field(default_factory=list)

    @property
    def device(self) -> Device:
        return self.memory.device

    @property
    def limits(self) -> Limits:
        return self.memory.limits

    @property
    def int8(self) -> bool:
        return self.memory.int8

    @property
    def cooperative(self) -> bool:
        return self.memory.cooperative

    # --- sizes

    def rows(self, tensor: Tensor) -> int:
        """The most rows a value has in this bucket."""
        return concrete(tensor.shape[:1], bucket_sizes(self.limits, self.n_tokens, self.n_outputs))[0]

    def width(self, tensor: Tensor) -> int:
        """Values in one row."""
        return row_size(tensor.shape)

    def root(self, tensor: Tensor) -> Tensor:
        """The value that a reshape gives another shape."""
        return self._roots.get(tensor, tensor)

    def reshaped(self, tensor: Tensor, source: Tensor) -> None:
        self._roots[tensor] = self.root(source)

    # --- places

    def place(self, tensor: Tensor) -> Place:
        """Where a value lies, or a weight as float32."""
        if isinstance(tensor, Weight):
            return self.upload(tensor, "f32", lambda: [np.ascontiguousarray(tensor.dequantize(), np.float32)])[0]
        if tensor.name in STEP_INPUTS:
            return self.of_step(getattr(self.memory.layout, tensor.name), self.rows(tensor))
        if self.root(tensor) in self._views:
            return self._views[self.root(tensor)]
        offset = self.memory.plan.offsets[tensor] // 4
        return self.memory.activations.part(offset, self.rows(tensor) * self.width(tensor))

    def view(self, tensor: Tensor, source: Tensor, start: int) -> bool:
        """Have a slice lie where its source does: that of a single row, at a place as aligned as others."""
        if self.rows(source) > 1 or start % ALIGNMENT or tensor in self.memory.kept:
            return False
        self._views[tensor] = self.place(source).part(start, self.width(tensor))
        return True

    def of_step(self, word: int, n_words: int) -> Place:
        """A field of the step block; written before the first dispatch."""
        return Place(self.memory.step, word, n_words, constant=True)

    def upload(self, weight: Weight, layout: Hashable, make: Callable[[], Sequence[Part]]) -> list[Place]:
        """A weight in a layout of this name: ``make`` repacks it, the first time; a place for each part it gives."""
        return self.memory.weights.put((id(weight.source), weight.name, layout), make, weight.source)

    def constant(self, key: Hashable, make: Callable[[], NDArray[Any]]) -> Place:
        """A table that kernels read and that is no weight."""
        return self.memory.weights.put(key, lambda: [make()])[0]

    def scratch(self, name: str, n_bytes: int) -> Place:
        """Memory of this name, which all nodes and buckets share: the same each time, unless it must be larger."""
        named = self.memory.named
        if name not in named or 4 * named[name].size < n_bytes:
            named[name] = self.memory.scratch.take(n_bytes)
        return named[name].part(0, -(-n_bytes // 4))

    # --- recording

    def lower(self, node: Node) -> None:
        """Append the dispatches of a node."""
        self.memory.rules[node.op].lower(self, node)

    def dispatch(
        self,
        kernel: str,
        *,
        count: Tensor | int,
        reads: Places,
        writes: Places,
        also_reads: Sequence[Place] = (),
        push: Mapping[str, Numbers] = {},
        constants: Sequence[int] = (),
        grid: tuple[int, int, int],
        label: str = "",
        full_subgroups: bool = False,
    ) -> None:
        """Append a kernel; ``count`` is a tensor whose rows it works on, or a number of rows.

        ``also_reads`` is what it finds through a buffer of ``reads`` by itself. Raises ValueError where the names are
        not those that the shader declares.
        """
        places = {**reads, **writes}
        declared = interface(kernel)
        packed = declared.pack(rows=self.count_word(count), **_offsets(places), **push)
        self.dispatches.append(
            Dispatch(
                kernel,
                tuple(constants),
                (self.memory.step, *(place.buffer for place in _each(places[name] for name in declared.places))),
                packed,
                grid,
                self._ordered([*_each(reads.values()), *also_reads], [*_each(writes.values())]),
                label or kernel,
                full_subgroups,
            )
        )

    def grid(self, n_groups: int) -> tuple[int, int, int]:
        """A grid of at least so many workgroups, in two dimensions if need be: ``group_index()`` of common.glsl."""
        most = self.device.max_threadgroups[0]
        n_y = -(-n_groups // most)
        return -(-n_groups // n_y), n_y, 1

    def count_word(self, count: Tensor | int) -> int:
        if isinstance(count, int):
            return FIXED | count
        first, most = count.shape[0], self.rows(count)
        return SIZE_WORDS[first] if isinstance(first, str) and most > 1 else FIXED | most

    def _ordered(self, reads: Sequence[Place], writes: Sequence[Place]) -> bool:
        """Whether a barrier must come first, for what was written since the last, or read and is written now."""
        reads = [place for place in reads if not place.constant]
        clash = any(a.overlaps(b) for a in (*reads, *writes) for b in self._writes)
        clash = clash or any(a.overlaps(b) for a in writes for b in self._reads)
        if clash:
            self._reads, self._writes = [], []
        self._reads += reads
        self._writes += writes
        return clash


def local_size(width: int, most: int = 256) -> int:
    """Invocations of a workgroup that goes over so many values: a power of two."""
    size = 32
    while size < most and 2 * size < width:
        size *= 2
    return size


def _offsets(places: Places) -> dict[str, Numbers]:
    """Their push constants."""
    return {
        name + PLACE: found.offset if isinstance(found, Place) else [place.offset for place in found]
        for name, found in places.items()
    }


def _each(places: Iterable[Place | Sequence[Place]]) -> Iterator[Place]:
    for found in places:
        yield from [found] if isinstance(found, Place) else found
