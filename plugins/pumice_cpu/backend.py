"""The CPU backend and its programs. A segment becomes a table of kernels that all threads run in one call."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Tensor
from pumice.plugin.unstable import (
    Access,
    Arena,
    Backend,
    Batch,
    CacheViews,
    Capabilities,
    DeviceInfo,
    HostProgram,
    KVState,
    Limits,
    MemoryPlan,
    Node,
    Program,
    RecurrentState,
    Segment,
    Sizes,
    State,
    Step,
    bounded_threads,
    concrete,
    cores,
    host_memory_bytes,
)
from pumice_cpu.cache import folders
from pumice_cpu.isa import features, tiles_missing, usable
from pumice_cpu.kernel import load_kernels
from pumice_cpu.memory import WeightMemory
from pumice_cpu.packed import Packed, pack, pack_kernel
from pumice_cpu.runtime import KERNELS, POOLS, ThreadPool

logger = logging.getLogger("pumice")

TILES = ("amx-tile", "amx-bf16")  # features of processors whose tile registers ``cpu.amx`` uses
DTYPES = {"f32": np.float32, "i32": np.int32}
MOST_SIZES = 64  # sizes of steps whose views a program keeps


@dataclass
class CpuOptions:
    """Configuration section ``cpu``."""

    threads: Annotated[int, Ge(0)] = 0  # 0: one per core available to this process
    batch_invariant: bool = False  # float matrices, too, give bit-identical results for any batch
    adaptive: bool = True  # run steps on one thread when other programs occupy the cores and that is faster
    amx: bool | Literal["emulated"] = False  # multiply many rows in tile registers; emulated: slowly, for tests


class CpuBackend(Backend):
    """The backend for the processor's vector units. Quantized weights stay quantized."""

    shares_arenas = True
    keeps_outputs = True
    Options = CpuOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._pool: ThreadPool | None = None
        self._memory = ModelMemory()

    @classmethod
    def unavailable(cls) -> str | None:
        usable()
        return None

    @classmethod
    def access(cls) -> Access:
        """Return paths of the caches that hold compiled kernels."""
        return Access(read=tuple(map(str, folders())))

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        details = {"cores": str(cores()), "instructions": usable().name}
        if features().issuperset(TILES):
            details["amx"] = "with cpu.amx"
        return [DeviceInfo("processor", "cpu", host_memory_bytes(), details)]

    def supports(self, node: Node, limits: Limits) -> bool:
        from pumice_cpu.lower import RULES

        rule = RULES.get(node.op)
        return rule is not None and rule.claims(node, limits)

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        if self._pool is None:
            self._pool = POOLS.take(bounded_threads(self.options.threads, "cpu.threads"), self.options.adaptive)
        invariant = self.options.batch_invariant
        tiles = "" if invariant else _kind_of_tiles(self.options.amx)
        return CpuProgram(self._pool, self._memory, segment, plan, limits, invariant, tiles)

    def close(self) -> None:
        if self._pool is not None:
            POOLS.give_back(self._pool)
            self._pool = None


def _kind_of_tiles(option: bool | str) -> str:
    """Return the kind of tiles (kernels/tiles.py) that the option ``amx`` asks for; empty for none."""
    if option is True and (reason := tiles_missing()):
        logger.warning("cpu.amx: not used: %s", reason)
        return ""
    return "amx" if option is True else option or ""


@dataclass
class ModelMemory:
    """Memory that the programs of a model share.

    Programs that give no logits share activations and scratch memory, too: one of them runs at a time.
    """

    packed: dict[str, Packed] = field(default_factory=dict)
    weights: WeightMemory = field(default_factory=WeightMemory)
    states: dict[State, Any] = field(default_factory=dict)
    arenas: list[Arena] = field(default_factory=list)
    scratch: dict[str, NDArray[np.uint8]] = field(default_factory=dict)  # the largest by name

    def take_arena(self, size: int) -> tuple[Arena, bool]:
        """Return a shared arena of at least ``size`` bytes, and True if it is new."""
        arena = next((arena for arena in self.arenas if arena.size >= size), None)
        if arena is not None:
            return arena, False
        self.arenas.append(Arena(size, "cpu activations"))
        return self.arenas[-1], True


class _StepArrays(NamedTuple):
    """The arrays of a step's inputs and outputs by name, and of copies of the outputs beside a shared arena."""

    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    results: dict[str, NDArray[Any]]


class CpuProgram(HostProgram):
    """Three operation tables over shared memory: one token; several tokens and at most one output row; any step."""

    def __init__(
        self,
        pool: ThreadPool,
        memory: ModelMemory,
        segment: Segment,
        plan: MemoryPlan,
        limits: Limits,
        invariant: bool,
        tiles: str,
    ) -> None:
        from pumice_cpu.lower import RULES
        from pumice_cpu.lower.rule import Lowering, SegmentMemory, step_size

        self._pool = pool
        packed, states = memory.packed, memory.states
        self._packed = packed
        self._segment = segment
        self._plan = plan
        self._is_shared = not segment.gives_logits
        self._arena, self._is_first = (
            memory.take_arena(plan.size) if self._is_shared else (Arena(plan.size, "cpu activations"), True)
        )
        self._kept = {tensor.name: _room(tensor, limits) for tensor in segment.outputs} if self._is_shared else {}
        self._batch: Batch | None = None  # of the last step
        self._sizes: Sizes = {}  # of the last step
        self._arrays = _StepArrays({}, {}, {})  # of these sizes
        self._arrays_by_sizes: dict[tuple[tuple[str, int], ...], _StepArrays] = {}
        self._step = np.zeros(step_size(limits), np.int64)
        shared = SegmentMemory(
            pool, limits, plan, self._arena, self._step, memory.weights, packed, states, invariant, tiles
        )
        shared.largest = memory.scratch if self._is_shared else shared.largest
        states_before = set(states)
        self._lowered: dict[tuple[bool, bool], Lowering] = {}
        for one_token, one_output in ((True, True), (False, True), (False, False)):
            lowering = Lowering(shared, one_token, one_output)
            for node in segment.nodes:
                RULES[node.op].lower(lowering, node)
            self._lowered[one_token, one_output] = lowering
        self.capabilities = Capabilities(copies_slots=True, invariant=not shared.varies)
        names = [name for lowering in self._lowered.values() for name in lowering.table.kernels]
        load_kernels([*KERNELS, *names, *(pack_kernel(weight) for weight in shared.to_pack)])
        pool.start()
        for weight in shared.to_pack:
            pack(pool, weight, packed[weight.name])
        memory.weights.written()
        self._packed_bytes = sum(packed[weight.name].nbytes for weight in shared.to_pack)
        self._state_bytes = sum(states[state].nbytes for state in set(states) - states_before)
        self._recurrent = [states[state] for state in segment.states if isinstance(state, RecurrentState)]
        caches = [
            (state.window, states[state]) for state in segment.states if isinstance(state, KVState) and state in states
        ]
        if all(cache.has_whole_tiles for _, cache in caches):
            blocks: dict[int, list[NDArray[Any]]] = {}
            for window, cache in caches:
                blocks.setdefault(window, []).extend(cache.blocks)
            self.cache_views = CacheViews(blocks, self._recurrent, f"cpu {usable().name} {invariant} {tiles}")

    def run(self, step: Step) -> Mapping[str, NDArray[Any]]:
        inputs, batch = step.inputs, step.batch
        n_tokens, n_outputs = len(batch.positions), len(batch.output_ids)
        self._describe(batch)
        arrays = self._arrays
        for name, view in arrays.inputs.items():
            np.copyto(view, inputs[name])
        lowering = self._lowered[n_tokens == 1, n_tokens == 1 or n_outputs <= 1]
        for prepare in lowering.before:
            prepare(inputs)
        self._pool.run(lowering.table, n_tokens)
        if not self._is_shared:
            return dict(arrays.outputs)
        for name, view in arrays.outputs.items():
            np.copyto(arrays.results[name], view)
        return dict(arrays.results)

    def _describe(self, batch: Batch) -> None:
        """Write a batch to the step block, and find the arrays of its inputs and outputs."""
        from pumice_cpu.lower.rule import describe_again, describe_step

        before, self._batch = self._batch, None  # an error below leaves no arrays of other sizes
        if before is None or not describe_again(self._step, batch, before):
            if self._sizes != (sizes := batch.sizes):
                self._arrays, self._sizes = self._arrays_of(sizes), sizes
            describe_step(self._step, batch)
        self._batch = batch

    def _arrays_of(self, sizes: Sizes) -> _StepArrays:
        """Return the arrays of a step of these sizes; those of recent sizes are kept, since drafts vary them."""
        key = tuple(sizes.items())
        if (arrays := self._arrays_by_sizes.get(key)) is None:
            if len(self._arrays_by_sizes) >= MOST_SIZES:
                self._arrays_by_sizes.clear()
            outputs = self._views_of(self._segment.outputs, sizes)
            results = {
                name: kept[: view.size].reshape(view.shape)
                for (name, view), kept in zip(outputs.items(), self._kept.values(), strict=False)
            }
            arrays = _StepArrays(self._views_of(self._segment.inputs, sizes), outputs, results)
            self._arrays_by_sizes[key] = arrays
        return arrays

    def _views_of(self, tensors: Sequence[Tensor], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the tensors' arrays in the arena by name, for a step of these sizes."""
        return {
            tensor.name: self._arena.view(
                self._plan.offsets[tensor], concrete(tensor.shape, sizes), DTYPES[tensor.dtype]
            )
            for tensor in tensors
        }

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        for array in self._recurrent:
            for source, target in pairs:
                array[target] = array[source]

    @property
    def host_weights(self) -> Sequence[NDArray[Any]]:
        kept = [array for lowering in self._lowered.values() for array in lowering.keep]
        packed = (self._packed[weight.name] for weight in self._segment.weights if weight.name in self._packed)
        tiles = [array for item in packed for array in (item.codes, item.scales)]
        return [*tiles, *(array for array in kept if isinstance(array, np.ndarray))]

    @property
    def memory(self) -> dict[str, int]:
        activations = self._arena.size if self._is_first else 0
        activations += sum(array.nbytes for array in self._kept.values())
        return {"weights": self._packed_bytes, "kv_cache": self._state_bytes, "activations": activations}


def _room(tensor: Tensor, limits: Limits) -> NDArray[Any]:
    """Return memory for a value in the largest step."""
    return np.zeros(math.prod(concrete(tensor.shape, limits.sizes)), DTYPES[tensor.dtype])
