"""The interface of lowering rules: `Rule`, and the `Lowering` that a rule adds kernels to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS, BackendError, Tensor, Weight
from pumice.plugin.unstable import Arena, Batch, Limits, MemoryPlan, Node, State, concrete, row_size
from pumice_cpu.memory import WeightMemory
from pumice_cpu.packed import Packed
from pumice_cpu.runtime import OperationTable, ThreadPool, address, aligned_zeros

# Indices in the step block, int64 values that change from step to step: first those of ``Batch.sizes``.
SIZES = 8  # maximum number of sizes
POSITIONS, SEQ_STARTS, SLOTS, MEMORY_LENGTHS, MEMORY_TABLE = range(SIZES, SIZES + 5)  # addresses of the batch's arrays
FEW, MANY = MEMORY_TABLE + 2, MEMORY_TABLE + 2 + SIZES  # sizes again: those of few rows, and those of many; others 0
BLOCK_TABLES = MANY + SIZES  # per window: a table's address and width

MANY_ROWS = 32  # least rows of a product for which decoding all weights is worthwhile


#: A function that Python runs before the table, with the segment's inputs by name.
HostStep = Callable[[Mapping[str, NDArray[Any]]], None]

#: An argument of a kernel: a number, or a value or an array, whose address the kernel gets.
Argument = int | Tensor | NDArray[Any]


@dataclass(frozen=True)
class Rule:
    """A rule for one operation: which nodes it supports, and how they become kernels."""

    lower: Callable[[Lowering, Node], None]
    claims: Callable[[Node, Limits], bool] = lambda node, limits: True


@dataclass
class SegmentMemory:
    """Memory shared by all tables of a segment."""

    pool: ThreadPool
    limits: Limits
    plan: MemoryPlan
    arena: Arena  # activations
    step: NDArray[np.int64]  # the step block
    weights: WeightMemory
    packed: dict[str, Packed]  # packed weights by name, shared by all segments
    states: dict[State, Any]
    invariant: bool = False  # use the kernels of many tokens for one, too, if their order of additions differs
    tiles: str = ""  # kind of tiles (kernels/tiles.py) that multiply many rows
    varies: bool = False  # a product of one token adds up in another order
    to_pack: list[Weight] = field(default_factory=list)  # weights whose tiles are not written yet
    scratch: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    largest: dict[str, NDArray[np.uint8]] = field(default_factory=dict)  # of all segments that share scratch memory


@dataclass
class Lowering:
    """Compilation of a segment for one kind of step: an operation table that rules append to."""

    memory: SegmentMemory
    one_token: bool  # this table is for steps of one token
    one_output: bool  # with at most one output row
    table: OperationTable = field(default_factory=OperationTable)
    keep: list[Any] = field(default_factory=list)  # arrays whose addresses are in the table
    before: list[HostStep] = field(default_factory=list)
    quantized: tuple[object, ...] | None = None  # key of the int8 activation in scratch memory
    products: tuple[Tensor, list[range]] | None = None  # operand and outputs of the latest products
    mapped: list[tuple[range, range]] = field(default_factory=list)  # extents of the latest kernels of ``add_mapped``
    grouped: tuple[Tensor, str, int] | None = None  # the grouped activation in scratch memory
    in_tiles: Tensor | None = None  # the activation in scratch memory as tiles
    computed: set[str] = field(default_factory=set)  # names of scratch memory with reusable contents

    @property
    def pool(self) -> ThreadPool:
        return self.memory.pool

    @property
    def limits(self) -> Limits:
        return self.memory.limits

    @property
    def invariant(self) -> bool:
        return self.memory.invariant

    @property
    def states(self) -> dict[State, Any]:
        return self.memory.states

    def add(self, name: str, rows_of: Tensor | None = None, /, **arguments: Argument) -> None:
        """Append a kernel, by its name, to the table; the number of rows of ``rows_of`` is its argument ``count``."""
        if rows_of is not None:
            arguments["count"] = self.count_address(rows_of)
        self._append(name, arguments, alongside=False)

    def add_alongside(self, name: str, /, **arguments: Argument) -> None:
        """Append a kernel that threads may start while others still run the previous one."""
        self._append(name, arguments, alongside=True)

    def _append(self, name: str, arguments: Mapping[str, Argument], *, alongside: bool) -> None:
        places = {
            key: self.address(value) if isinstance(value, Tensor | np.ndarray) else value
            for key, value in arguments.items()
        }
        self.table.add(name, places, alongside=alongside)
        self.products, self.mapped = None, []

    def add_mapped(self, name: str, x: Tensor, y: Tensor, **arguments: Argument) -> None:
        """Append a kernel that computes ``y`` from ``x``. Threads need no barrier between several that lie apart."""
        operand, result = self._extent(x), self._extent(y)
        others = self.mapped
        pairs = [pair for old in others for pair in ((result, old[0]), (result, old[1]), (operand, old[1]))]
        alongside = bool(others) and all(_are_apart(one, other) for one, other in pairs)
        self._append(name, {"count": self.count_address(x), "x": x, "y": y, **arguments}, alongside=alongside)
        self.mapped = [*others, (operand, result)] if alongside else [(operand, result)]

    def add_computed(self, into: Tensor, compute: Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]) -> None:
        """Append a value that Python computes from the segment's inputs before the table runs.

        The value is copied when its operation's turn comes, since another value may occupy its place until then.
        """
        width = row_size(into.shape)
        n_bytes = 4 * self.limits.sizes[str(into.shape[0])] * width
        address = self.scratch_memory(f"rows of {into.name}", n_bytes)
        rows = self.memory.scratch[f"rows of {into.name}"][:n_bytes].view(np.float32).reshape(-1, width)

        def step(inputs: Mapping[str, NDArray[Any]]) -> None:
            values = compute(inputs)
            rows[: len(values)] = values.reshape(len(values), width)

        self.before.append(step)
        sizes = {"n_rows": 1, "repeat": 1, "width": width, "x_stride": width, "y_stride": width}
        self.add("rows.copy", into, x=address, y=into, **sizes)

    def add_product(self, name: str, of: Tensor, into: Tensor, **arguments: Argument) -> None:
        """Append a product. Threads need no barrier between products of one value, such as q, k and v."""
        place = self._extent(into)
        others = self.products[1] if self.products is not None and self.products[0] is of else []
        alongside = bool(others) and all(_are_apart(place, other) for other in others)
        self._append(name, {"y": into, **arguments}, alongside=alongside)
        self.products = of, [*others, place] if alongside else [place]

    def add_alternative(self, name: str, into: Tensor, **arguments: Argument) -> None:
        """Append another kernel for the product just added. A step has rows for one of both, so none waits."""
        products = self.products
        self.add_alongside(name, y=into, **arguments)
        self.products = products

    def _extent(self, tensor: Tensor) -> range:
        """Return the range of bytes in the arena that a value occupies in the largest step."""
        n_values = math.prod(concrete(tensor.shape, self.limits.sizes))
        offset = self.memory.plan.offsets[tensor]
        return range(offset, offset + 4 * n_values)

    def address(self, tensor: Tensor | NDArray[Any]) -> int:
        """Return the address of a planned value, of a weight in float32, or of an array."""
        if not isinstance(tensor, Tensor):
            return self.hold(tensor)
        if isinstance(tensor, Weight):
            return self.hold(np.ascontiguousarray(tensor.dequantize(), np.float32))
        return int(self.memory.arena.view(0, (1,), np.uint8).ctypes.data) + self.memory.plan.offsets[tensor]

    def is_single(self, tensor: Tensor) -> bool:
        """Return True if a value has at most one row in this table's steps."""
        singles = {N_TOKENS: self.one_token, N_SEQS: self.one_token, N_OUTPUTS: self.one_output}
        return tensor.shape[0] == 1 or singles.get(str(tensor.shape[0]), False)

    def takes_one(self, tensor: Tensor) -> bool:
        """Whether a product of floats takes the kernel for one row, which adds up in another order than for several."""
        if self.invariant or not self.is_single(tensor):
            return False
        self.memory.varies = True
        return True

    def count_address(self, tensor: Tensor) -> int:
        """Return the address of a value's number of rows in the current step."""
        first = tensor.shape[0]
        if isinstance(first, int):
            return self.hold(np.array([first], np.int64))
        return self.size(first)

    def split_count(self, tensor: Tensor) -> tuple[int, int]:
        """Return two addresses of a value's number of rows, of which one reads 0: for few rows, and for many."""
        first = tensor.shape[0]
        if isinstance(first, int):
            counts = np.array([first if first < MANY_ROWS else 0, first if first >= MANY_ROWS else 0], np.int64)
            address = self.hold(counts)
            return address, address + 8
        place = size_place(self.limits, first)
        return self.of_step(FEW + place), self.of_step(MANY + place)

    def size(self, name: str) -> int:
        """Return the address of a named size in the current step."""
        return self.of_step(size_place(self.limits, name))

    @property
    def max_rows(self) -> int:
        """Return the maximum number of rows of any value in a step."""
        return max(self.limits.sizes.values())

    def of_step(self, place: int) -> int:
        """Return the address of an element of the step block."""
        return int(self.memory.step.ctypes.data) + 8 * place

    def hold(self, array: NDArray[Any]) -> int:
        """Keep an array alive with the program and return its address."""
        self.keep.append(array)
        return int(array.ctypes.data)

    def scratch_memory(self, name: str, size: int) -> int:
        """Return the address of scratch memory that operations use in turn. Grows to the largest request."""
        if name not in self.memory.scratch or len(self.memory.scratch[name]) < size:
            if name not in self.memory.largest or len(self.memory.largest[name]) < size:
                self.memory.largest[name] = aligned_zeros(size)
            self.memory.scratch[name] = self.memory.largest[name]
        return self.hold(self.memory.scratch[name])

    def tiles(self, weight: Weight) -> Packed:
        """Return the tiles of a weight, which are written before the program first runs."""
        if weight.name not in self.memory.packed:
            self.memory.packed[weight.name] = Packed.allocate(self.memory.weights, weight)
            self.memory.to_pack.append(weight)
        return self.memory.packed[weight.name]


def _are_apart(one: range, other: range) -> bool:
    return one.stop <= other.start or other.stop <= one.start


def size_place(limits: Limits, name: str) -> int:
    """Return the index of a named size in the step block. Raises BackendError if steps have no such size."""
    names = list(limits.sizes)
    if name not in names[:SIZES]:
        raise BackendError(f"cpu: unknown size {name!r} in a shape; steps have {', '.join(names[:SIZES])}")
    return names.index(name)


def step_size(limits: Limits) -> int:
    """Return the length of the step block: the batch's values, then per window, in rising order, its table."""
    return BLOCK_TABLES + 2 * len(limits.n_blocks)


def describe_again(step: NDArray[np.int64], batch: Batch, before: Batch) -> bool:
    """Write the positions of a batch to the step block of ``before``; False if it differs in more than these.

    Steps that follow each other often share all arrays but these.
    """
    if batch.seq_starts is not before.seq_starts or batch.output_ids is not before.output_ids:
        return False
    if batch.slots is not before.slots or batch.memory is not None or before.memory is not None:
        return False
    if batch.block_tables is not before.block_tables or batch.more_sizes != before.more_sizes:
        return False
    if len(batch.positions) != len(before.positions):
        return False
    step[POSITIONS] = address(batch.positions)
    return True


def describe_step(step: NDArray[np.int64], batch: Batch) -> None:
    """Write a batch to the step block. The batch must stay alive until the step ends."""
    sizes = list(batch.sizes.values())[:SIZES]
    step[: len(sizes)] = sizes
    step[FEW : FEW + len(sizes)] = [size if size < MANY_ROWS else 0 for size in sizes]
    step[MANY : MANY + len(sizes)] = [size if size >= MANY_ROWS else 0 for size in sizes]
    step[POSITIONS] = address(batch.positions)
    step[SEQ_STARTS] = address(batch.seq_starts)
    step[SLOTS] = address(batch.slots)
    if batch.memory is not None:
        tables = batch.memory.block_tables
        step[MEMORY_LENGTHS] = address(batch.memory.lengths)
        step[MEMORY_TABLE : MEMORY_TABLE + 2] = address(tables), tables.shape[1]
    for i, window in enumerate(sorted(batch.block_tables)):
        table = batch.block_tables[window]
        step[BLOCK_TABLES + 2 * i : BLOCK_TABLES + 2 * i + 2] = address(table), table.shape[1]
