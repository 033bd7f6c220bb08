"""What a lowering rule is, and what it works with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import (
    N_OUTPUTS,
    N_SEQS,
    N_TOKENS,
    Arena,
    BackendError,
    Batch,
    Limits,
    MemoryPlan,
    Node,
    State,
    Tensor,
    Weight,
    concrete,
    row_size,
)
from pumice_cpu.memory import WeightMemory
from pumice_cpu.packed import Packed
from pumice_cpu.runtime import OperationTable, ThreadPool, aligned_zeros

# Places in the block of numbers that change from step to step, in int64: first those of ``Batch.sizes``.
SIZES = 8  # of them at most
POSITIONS, SEQ_STARTS, SLOTS, MEMORY_LENGTHS, MEMORY_TABLE = range(SIZES, SIZES + 5)  # addresses of the batch's arrays
BLOCK_TABLES = MEMORY_TABLE + 2  # a table's address and width


#: Something done in Python before a table runs, with the segment's inputs by name.
HostStep = Callable[[Mapping[str, NDArray[Any]]], None]


@dataclass(frozen=True)
class Rule:
    """How nodes of one operation become kernels."""

    lower: Callable[[Lowering, Node], None]
    claims: Callable[[Node, Limits], bool] = lambda node, limits: True


@dataclass
class Memory:
    """What the tables of a segment share: where everything lies."""

    pool: ThreadPool
    limits: Limits
    plan: MemoryPlan
    arena: Arena  # of activations
    step: NDArray[np.int64]  # numbers that change from step to step
    weights: WeightMemory
    packed: dict[str, Packed]  # weights in tiles, by name; all segments share them
    states: dict[State, Any]
    invariant: bool = False  # one token takes the kernels of many where these add up in another order
    to_pack: list[Weight] = field(default_factory=list)  # those in tiles whose tiles are to be written yet
    scratch: dict[str, NDArray[np.uint8]] = field(default_factory=dict)


@dataclass
class Lowering:
    """The compiling of one segment for steps of one kind: a table of operations that grows."""

    memory: Memory
    one_token: bool  # this table is for steps of one token
    one_output: bool  # of at most one output row
    table: OperationTable = field(default_factory=OperationTable)
    keep: list[Any] = field(default_factory=list)  # memory whose addresses are in the table
    before: list[HostStep] = field(default_factory=list)
    quantized: tuple[object, ...] | None = None  # the activation in int8 in scratch memory, and how
    products: tuple[Tensor, list[range]] | None = None  # the last operations are products of it, into these places
    grouped: tuple[Tensor, str] | None = None  # the activation whose groups are in scratch memory
    computed: set[str] = field(default_factory=set)  # names of scratch memory already filled, to be used again

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

    def add(self, name: str, **arguments: int) -> None:
        """Append the kernel of this name to the table."""
        self.table.add(name, arguments)
        self.products = None

    def add_computed(self, into: Tensor, compute: Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]) -> None:
        """Append a value that Python computes of the segment's inputs before the table runs.

        It is copied when its turn comes: until then its place may be that of another value.
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
        self.add("rows.copy", count=self.count_address(into), x=address, y=self.address(into), **sizes)

    def add_product(self, name: str, of: Tensor, into: Tensor, **arguments: int) -> None:
        """Append a product; threads need not wait between several of the same values, such as q, k and v."""
        place = self._extent(into)
        others = self.products[1] if self.products is not None and self.products[0] is of else []
        alongside = bool(others) and all(place.stop <= other.start or other.stop <= place.start for other in others)
        self.table.add(name, {**arguments, "y": self.address(into)}, alongside=alongside)
        self.products = of, [*others, place] if alongside else [place]

    def _extent(self, tensor: Tensor) -> range:
        """The bytes of the plan that a value takes in the largest step."""
        n_values = math.prod(concrete(tensor.shape, self.limits.sizes))
        offset = self.memory.plan.offsets[tensor]
        return range(offset, offset + 4 * n_values)

    def address(self, tensor: Tensor) -> int:
        """Where a value of the plan, or a float32 weight that is read as it is, lies."""
        if isinstance(tensor, Weight):
            return self.hold(np.ascontiguousarray(tensor.dequantize(), np.float32))
        return int(self.memory.arena.view(0, (1,), np.uint8).ctypes.data) + self.memory.plan.offsets[tensor]

    def is_single(self, tensor: Tensor) -> bool:
        """Whether a value has at most one row in the steps that this table is for."""
        singles = {N_TOKENS: self.one_token, N_SEQS: self.one_token, N_OUTPUTS: self.one_output}
        return tensor.shape[0] == 1 or singles.get(str(tensor.shape[0]), False)

    def count_address(self, tensor: Tensor) -> int:
        """Address of the number of rows that a value has in this step."""
        first = tensor.shape[0]
        if isinstance(first, int):
            return self.hold(np.array([first], np.int64))
        return self.size(first)

    def size(self, name: str) -> int:
        """Address of the number that a name of a shape has in this step."""
        return self.of_step(size_place(self.limits, name))

    @property
    def max_rows(self) -> int:
        """The most rows that any value has in a step."""
        return max(self.limits.sizes.values())

    def of_step(self, place: int) -> int:
        """Address of one of the numbers that change from step to step."""
        return int(self.memory.step.ctypes.data) + 8 * place

    def hold(self, array: NDArray[Any]) -> int:
        """Keep an array for as long as the program lives; its address."""
        self.keep.append(array)
        return int(array.ctypes.data)

    def scratch_memory(self, name: str, size: int) -> int:
        """Address of memory that operations use one after the other. Larger each time it does not suffice."""
        if name not in self.memory.scratch or len(self.memory.scratch[name]) < size:
            self.memory.scratch[name] = aligned_zeros(size)
        return self.hold(self.memory.scratch[name])

    def tiles(self, weight: Weight) -> Packed:
        """The memory of a weight in tiles, which are written before the program first runs."""
        if weight.name not in self.memory.packed:
            self.memory.packed[weight.name] = Packed.allocate(self.memory.weights, weight)
            self.memory.to_pack.append(weight)
        return self.memory.packed[weight.name]


def size_place(limits: Limits, name: str) -> int:
    """Where the number of a shape's name lies in the block. Raises BackendError for one that no step brings."""
    names = list(limits.sizes)
    if name not in names[:SIZES]:
        raise BackendError(f"cpu: the size {name} is not one of a step's: {', '.join(names[:SIZES])}")
    return names.index(name)


def step_size(limits: Limits) -> int:
    """Numbers in the block: after the batch's, of each window, in rising order, its table's address and width."""
    return BLOCK_TABLES + 2 * len(limits.n_blocks)


def describe_step(step: NDArray[np.int64], batch: Batch) -> None:
    """Write what changes from step to step where the kernels look for it. The batch must live until the step ends."""
    sizes = list(batch.sizes.values())[:SIZES]
    step[: len(sizes)] = sizes
    step[POSITIONS] = batch.positions.ctypes.data
    step[SEQ_STARTS] = batch.seq_starts.ctypes.data
    step[SLOTS] = batch.slots.ctypes.data
    if batch.memory is not None:
        tables = batch.memory.block_tables
        step[MEMORY_LENGTHS] = batch.memory.lengths.ctypes.data
        step[MEMORY_TABLE : MEMORY_TABLE + 2] = tables.ctypes.data, tables.shape[1]
    for i, window in enumerate(sorted(batch.block_tables)):
        table = batch.block_tables[window]
        step[BLOCK_TABLES + 2 * i : BLOCK_TABLES + 2 * i + 2] = table.ctypes.data, table.shape[1]
