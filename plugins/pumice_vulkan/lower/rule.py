"""The interface of lowering rules: `Rule`, and the `Lowering` that a rule adds dispatches to.

A rule turns a node of the graph into dispatches. Lowering happens once per *bucket*: a number of tokens that a command
buffer is recorded for (``lowering.n_tokens``: 1, 2, 4, ...; a step uses the smallest that fits), and a number of output
rows (``lowering.n_outputs``: 1, or the maximum)::

    def _silu(lowering: Lowering, node: Node) -> None:
        (x,) = node.operands()
        rows = lowering.rows(x)               # maximum rows of x in this bucket
        lowering.dispatch(
            "unary.silu",                     # shaders/spv/unary.silu.spv
            count=x,                          # actual number of rows: the push constant ``rows``, see below
            reads={"x": lowering.place(x)},   # ``x_at``, and the buffer of a binding
            writes={"y": lowering.place(node.output)},
            push={"width": lowering.width(x), "p": 0.5, "q": 0.0},  # the other push constants
            constants=[256],                  # specialization constants
            grid=(rows, 1, 1),                # workgroups
        )

- **Buffer slices** (memory.BufferSlice) are ranges of buffers in 32-bit words, the places of data:
  ``lowering.place(tensor)`` of an activation, of the inputs ``tokens``, ``positions`` and ``output_ids``, or of a
  weight as float32; ``lowering.upload(weight, layout, make)`` of a weight in a custom layout, repacked once;
  ``lowering.constant(key, make)`` of a small table; ``lowering.scratch(name, n_bytes)`` of memory that nodes use in
  turn; ``lowering.of_step(word, n)`` of a field of the step block. ``lowering.remembered`` is a dict of reusable
  results in this bucket, such as the int8 form of an activation in scratch memory (keyed by name; the next node that
  uses the memory must overwrite the entry).
- **Push constants** are declared only in GLSL, and passed by name (interface.py); a missing or unknown one is an error.
  ``rows`` is the number of actual rows: with bit 31 a number, without it an index in the step block (``row_count()`` of
  common.glsl). ``NAME_at`` is the word offset of the place ``NAME`` in ``reads`` or ``writes``. Every activation has
  room for the largest step, so a kernel may write rows beyond the count, up to the bucket.
- **Bindings**: 0 is the step block (step.py), then the buffers of places, in the order of their push constants.
- **Barriers** follow from ``reads`` and ``writes``; dispatches that do not touch each other's places may overlap. A
  place that is read and written is in both lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError, Tensor, Weight
from pumice.plugin.unstable import Limits, MemoryPlan, Node, Sizes, State, row_size
from pumice_vulkan.buckets import bucket_sizes
from pumice_vulkan.device import Buffer, Device, MatrixShape
from pumice_vulkan.flags import FIXED
from pumice_vulkan.interface import PLACE, Numbers
from pumice_vulkan.lower.work import multiplications
from pumice_vulkan.memory import ALIGNMENT, Arena, BufferSlice, Scratch, WeightData, Weights
from pumice_vulkan.shaders import interface
from pumice_vulkan.step import StepLayout, size_words

BufferSlices = Mapping[str, BufferSlice | Sequence[BufferSlice]]  # by the kernel's names; several for an array

MOST_INVARIANT = 16  # rows of a step up to which results may be independent of their number

STEP_INPUTS = ("tokens", "positions", "output_ids")


class StateUse(Enum):
    """Use of recurrent states by dispatches, besides reading them.

    Tokens of a step with drafts may be wrong, so its layers leave the states as they are, and keep what the states
    depend on. Once the tokens are verified, the states read the right ones.
    """

    ADVANCE = "states after all tokens"
    KEEP = "states as they were"
    SETTLE = "states after the right tokens, without results"


@dataclass(frozen=True)
class Rule:
    """A rule for one operation: which nodes it supports, and how they become dispatches."""

    lower: Callable[[Lowering, Node], None]
    claims: Callable[[Node, Limits], bool] = lambda node, limits: True


@dataclass(frozen=True)
class Dispatch:
    """A dispatch of a kernel before it is recorded."""

    kernel: str
    constants: tuple[int, ...]
    buffers: tuple[Any, ...]
    push: bytes
    grid: tuple[int, int, int]
    barrier: bool  # a barrier precedes the dispatch
    label: str  # name in profiles
    full_subgroups: bool = False
    work: int = 0  # multiplications of the operation that ends with it, where submits are kept short


@dataclass
class SegmentMemory:
    """Memory shared by all buckets of a program."""

    device: Device
    limits: Limits
    plan: MemoryPlan
    weights: Weights
    activations: BufferSlice
    step: Buffer
    layout: StepLayout
    cache: Arena
    scratch: Scratch
    int8: bool = False  # products with few rows use int8 activations
    half: bool = False  # products with many rows multiply in float16 without matrix units
    cooperative: MatrixShape | None = None  # of the matrix units on which products with many rows run
    invariant: bool = False  # results of up to MOST_INVARIANT rows do not depend on their number
    lanes: bool = False  # the division of their fragments among lanes is that of shaders/matmul_lanes.comp
    sums_by_rows: bool | None = None  # the order of a lane's sums in shaders/fragments.glsl; None: unknown
    states: dict[State, Any] = field(default_factory=dict)  # places in ``cache``, shared by the graphs of a model
    rules: Mapping[str, Rule] = field(default_factory=dict)
    kept: Set[Tensor] = frozenset()  # values that must stay at their planned place, since they are copied to the host
    state_inputs: Mapping[Tensor, BufferSlice] = field(default_factory=dict)  # their places where states are settled


def weight_key(weight: Weight, layout: Hashable) -> Hashable:
    """Return the key of a weight's place on the device in a layout."""
    return id(weight.source), weight.name, layout


@dataclass
class Lowering:
    """The lowering of a segment for one bucket."""

    memory: SegmentMemory
    n_tokens: int
    n_outputs: int
    lone: bool = False  # each token is the only one of its sequence
    uploads: bool = True  # False where a step of the engine may be held: an upload would release it
    use: StateUse = StateUse.ADVANCE
    dispatches: list[Dispatch] = field(default_factory=list)
    remembered: dict[Hashable, Any] = field(default_factory=dict)
    _roots: dict[Tensor, Tensor] = field(default_factory=dict)
    _views: dict[Tensor, BufferSlice] = field(default_factory=dict)
    _reads: list[BufferSlice] = field(default_factory=list)  # places read since the last barrier
    _writes: list[BufferSlice] = field(default_factory=list)

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
        return bool(self.memory.cooperative)

    @property
    def unit(self) -> tuple[int, int, int]:
        """M, N and K of a product of matrix units."""
        assert self.memory.cooperative
        return self.memory.cooperative.m, self.memory.cooperative.n, self.memory.cooperative.k

    @property
    def invariant(self) -> bool:
        """True if each row is summed in the same order for any number of rows."""
        return self.memory.invariant and self.n_tokens <= MOST_INVARIANT

    # --- sizes

    @functools.cached_property
    def _sizes(self) -> Sizes:
        return bucket_sizes(self.limits, self.n_tokens, self.n_outputs)

    @functools.cached_property
    def _size_words(self) -> dict[str, int]:
        return size_words(self.limits)

    def rows(self, tensor: Tensor) -> int:
        """The most rows a value has in this bucket."""
        first = tensor.shape[0] if tensor.shape else 1
        return self._sizes[first] if isinstance(first, str) else first

    def width(self, tensor: Tensor) -> int:
        """Return the values per row."""
        return row_size(tensor.shape)

    def root(self, tensor: Tensor) -> Tensor:
        """Return the value that a reshape refers to."""
        return self._roots.get(tensor, tensor)

    def reshaped(self, tensor: Tensor, source: Tensor) -> None:
        self._roots[tensor] = self.root(source)

    # --- places

    def place(self, tensor: Tensor) -> BufferSlice:
        """Return the place of a value, or of a weight as float32."""
        if isinstance(tensor, Weight):
            return self.upload(tensor, "f32", lambda: [np.ascontiguousarray(tensor.dequantize(), np.float32)])[0]
        if tensor.name in STEP_INPUTS:
            return self.of_step(getattr(self.memory.layout, tensor.name), self.rows(tensor))
        if self.use is not StateUse.ADVANCE and tensor in self.memory.state_inputs:
            place = self.memory.state_inputs[tensor]
            return place.part(0, self.rows(tensor) * self.width(tensor))
        if self.root(tensor) in self._views:
            return self._views[self.root(tensor)]
        offset = self.memory.plan.offsets[tensor] // 4
        return self.memory.activations.part(offset, self.rows(tensor) * self.width(tensor))

    def view(self, tensor: Tensor, source: Tensor, start: int) -> bool:
        """Place a slice of a single row inside its source, if its alignment suffices; return whether that worked."""
        if self.rows(source) > 1 or start % ALIGNMENT or tensor in self.memory.kept:
            return False
        self._views[tensor] = self.place(source).part(start, self.width(tensor))
        return True

    def of_step(self, word: int, n_words: int) -> BufferSlice:
        """Return a field of the step block, which is written before the first dispatch."""
        return BufferSlice(self.memory.step, word, n_words, constant=True)

    def upload(self, weight: Weight, layout: Hashable, make: Callable[[], Sequence[WeightData]]) -> list[BufferSlice]:
        """Upload a weight in a named layout, repacked by ``make`` the first time; return a place for each part."""
        in_place = self.limits.is_in_place(weight.name)
        return self._put(weight_key(weight, layout), make, weight.source, in_place)

    def constant(self, key: Hashable, make: Callable[[], NDArray[Any]]) -> BufferSlice:
        """Return the place of a constant table that is not a weight."""
        return self._put(key, lambda: [make()])[0]

    def _put(
        self, key: Hashable, make: Callable[[], Sequence[WeightData]], owner: object = None, in_place: bool = False
    ) -> list[BufferSlice]:
        weights = self.memory.weights
        if not self.uploads and key not in weights:
            raise BackendError(f"vulkan: {key} is not on the device yet; the step that needs it uploads it")
        return weights.put(key, make, owner, in_place=in_place)

    def scratch(self, name: str, n_bytes: int) -> BufferSlice:
        """Return scratch memory by name, shared by all nodes, buckets and programs of the device."""
        return self.memory.scratch.take(name, n_bytes)

    # --- recording

    def lower(self, node: Node) -> None:
        """Append the dispatches of a node, the last of them with the work of all."""
        first = len(self.dispatches)
        self.memory.rules[node.op].lower(self, node)
        added = self.dispatches[first:]
        if self.device.description.most_work and added and not any(dispatch.work for dispatch in added):
            work = multiplications(node, self._sizes, self.limits.n_ctx)
            self.dispatches[-1] = replace(self.dispatches[-1], work=work)

    def dispatch(
        self,
        kernel: str,
        *,
        count: Tensor | int,
        reads: BufferSlices,
        writes: BufferSlices,
        also_reads: Sequence[BufferSlice] = (),
        push: Mapping[str, Numbers] = {},
        constants: Sequence[int] = (),
        grid: tuple[int, int, int],
        label: str = "",
        full_subgroups: bool = False,
    ) -> None:
        """Append a kernel.

        Args:
            kernel: name of the shader variant.
            count: a tensor whose rows the kernel processes, or a number of rows.
            reads: places by name.
            writes: places by name.
            also_reads: places that the kernel reaches through a buffer of ``reads``.
            push: other push constants.
            constants: specialization constants.
            grid: workgroups.
            label: name in profiles; default: the kernel's.
            full_subgroups: require full subgroups.

        Raises:
            ValueError: if the names differ from the shader's declaration.
        """
        places = {**reads, **writes}
        declared = interface(kernel)
        packed = declared.pack(rows=self.count_word(count), **_offsets(places), **push)
        self.dispatches.append(
            Dispatch(
                kernel,
                tuple(constants),
                (self.memory.step, *[place.buffer for place in _flat([places[name] for name in declared.places])]),
                packed,
                grid,
                self._ordered([*_flat(reads.values()), *also_reads], _flat(writes.values())),
                label or kernel,
                full_subgroups,
            )
        )

    def grid(self, n_groups: int) -> tuple[int, int, int]:
        """Return a grid of at least ``n_groups`` workgroups in up to two dimensions (``group_index()``)."""
        most = self.device.description.max_threadgroups[0]
        n_y = -(-n_groups // most)
        return -(-n_groups // n_y), n_y, 1

    def count_word(self, count: Tensor | int) -> int:
        if isinstance(count, int):
            return FIXED | count
        first, most = count.shape[0], self.rows(count)
        return self._size_words[first] if isinstance(first, str) and most > 1 else FIXED | most

    def _ordered(self, reads: Sequence[BufferSlice], writes: Sequence[BufferSlice]) -> bool:
        """Return True if a barrier is needed: for writes since the last one, or for reads of places to be written."""
        reads = [place for place in reads if not place.constant]
        clash = _overlap(reads, self._writes) or _overlap(writes, self._writes) or _overlap(writes, self._reads)
        if clash:
            self._reads, self._writes = [], []
        self._reads += reads
        self._writes += writes
        return clash


def local_size(width: int, most: int = 256) -> int:
    """Return a workgroup size, a power of two, for ``width`` values."""
    size = 32
    while size < most and 2 * size < width:
        size *= 2
    return size


def _offsets(places: BufferSlices) -> dict[str, Numbers]:
    """Return the push constants of places."""
    return {
        name + PLACE: value.offset if isinstance(value, BufferSlice) else [place.offset for place in value]
        for name, value in places.items()
    }


def _flat(places: Iterable[BufferSlice | Sequence[BufferSlice]]) -> list[BufferSlice]:
    flat: list[BufferSlice] = []
    for value in places:
        if isinstance(value, BufferSlice):
            flat.append(value)
        else:
            flat.extend(value)
    return flat


def _overlap(places: Iterable[BufferSlice], others: Sequence[BufferSlice]) -> bool:
    """Return True if any of ``places`` overlaps any of ``others``."""
    return any(place.overlaps(other) for place in places for other in others)
