"""The NumPy backend and its programs: a loop over the nodes of a segment."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Tensor, TensorSource, Weight
from pumice.plugin.unstable import (
    OPERATIONS,
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
    State,
    Step,
    concrete,
    cores,
    host_memory_bytes,
)
from pumice_numpy.attention import KVCache, attention, choose_positions, kv_store
from pumice_numpy.ops import OPS, tap
from pumice_numpy.recurrent import RECURRENT_OPS
from pumice_numpy.tokens import can_cut, joined, single_tokens
from pumice_numpy.weights import WeightCache

DTYPES = {"f32": np.float32, "i32": np.int32}
STATEFUL_OPS: dict[str, Any] = {
    "attention": attention,
    "choose_positions": choose_positions,
    "kv_store": kv_store,
    "tap": tap,
    **RECURRENT_OPS,
}


@dataclass
class NumpyOptions:
    """Configuration section ``numpy``."""

    cache_mib: Annotated[int, Ge(0)] = 4096  # cache of weights decoded to float32; the others are decoded at every use
    batch_invariant: bool = False  # compute tokens one by one, for bit-identical results in any batch


class NumpyBackend(Backend):
    """The reference backend, which runs every operation on the CPU."""

    Options = NumpyOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.weights = WeightCache(self.options.cache_mib * 2**20)
        self.states: dict[State, Any] = {}
        self.sources: set[TensorSource] = set()  # sources of the weights of all programs

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        details = {"cores": str(cores()), "numpy": np.__version__}
        return [DeviceInfo(platform.processor() or platform.machine(), "cpu", host_memory_bytes(), details)]

    def supports(self, node: Node, limits: Limits) -> bool:
        if isinstance(node.state, KVState) and not limits.can_hold(node.state):
            return False
        return node.op in OPS or node.op in STATEFUL_OPS

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        new = [state for state in segment.states if state not in self.states]
        self.states |= {state: _make_state(state, limits) for state in new}
        sources = {weight.source for weight in segment.weights} - self.sources
        self.sources |= sources
        added = {
            "weights": sum(source.nbytes for source in sources),
            "kv_cache": sum(self.states[state].nbytes for state in new),
        }
        one_by_one = self.options.batch_invariant and can_cut(segment)
        return NumpyProgram(self.weights, self.states, segment, plan, added, one_by_one)


class NumpyProgram(HostProgram):
    """A loop over the nodes; each result is written to its planned offset in one arena.

    ``added``: bytes of weights and states that this program uses first. ``one_by_one``: compute one token at a time.
    """

    def __init__(
        self,
        weights: WeightCache,
        states: Mapping[State, Any],
        segment: Segment,
        plan: MemoryPlan,
        added: Mapping[str, int],
        one_by_one: bool,
    ) -> None:
        self._added = added
        self._one_by_one = one_by_one
        self.capabilities = Capabilities(copies_slots=True, invariant=one_by_one)
        self._weights = weights
        self._segment = segment
        self._plan = plan
        self._arena = Arena(plan.size, "numpy activations")
        self._states = {state: states[state] for state in segment.states}
        caches = [self._states[state] for state in segment.states if isinstance(state, KVState)]
        blocks: dict[int, list[NDArray[Any]]] = {}
        for cache in caches:
            blocks.setdefault(cache.window, []).extend(cache.blocks)
        slots = [self._states[state] for state in segment.states if isinstance(state, RecurrentState)]
        self.cache_views = CacheViews(blocks, slots, f"numpy {np.__version__} {platform.machine()} {one_by_one}")

    def run(self, step: Step) -> Mapping[str, NDArray[Any]]:
        inputs, batch = step.inputs, step.batch
        if not self._one_by_one or len(batch.positions) == 1:
            return self._run(inputs, batch)
        parts = []
        for single, its in single_tokens(batch, self._segment.inputs, inputs):
            parts.append({name: array.copy() for name, array in self._run(its, single).items()})
        return {tensor.name: joined(tensor, parts, batch) for tensor in self._segment.outputs}

    def _run(self, inputs: Mapping[str, NDArray[Any]], batch: Batch) -> Mapping[str, NDArray[Any]]:
        values: dict[Tensor, NDArray[Any]] = {}
        for tensor in self._segment.inputs:
            values[tensor] = self._place(tensor, batch)
            np.copyto(values[tensor], inputs[tensor.name])
        for node in self._segment.nodes:
            values[node.output] = self._place(node.output, batch)
            if node.op != "reshape":  # a reshape is another view of the same memory
                np.copyto(values[node.output], self._compute(node, values, batch))
        return {tensor.name: values[tensor] for tensor in self._segment.outputs}

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        for state, array in self._states.items():
            if isinstance(state, RecurrentState):
                for source, target in pairs:
                    array[target] = array[source]

    @property
    def host_weights(self) -> Sequence[NDArray[Any]]:
        return [weight.data for weight in self._segment.weights]

    @property
    def memory(self) -> dict[str, int]:
        return {**self._added, "activations": self._plan.size}

    def _place(self, tensor: Tensor, batch: Batch) -> NDArray[Any]:
        shape = concrete(tensor.shape, batch.sizes)
        return self._arena.view(self._plan.offsets[tensor], shape, DTYPES[tensor.dtype])

    def _compute(self, node: Node, values: Mapping[Tensor, NDArray[Any]], batch: Batch) -> NDArray[Any]:
        names = OPERATIONS[node.op].operands
        operands = {name: self._operand(node.inputs.get(name), values) for name in names}
        if node.op in STATEFUL_OPS:
            state = self._states[node.state] if node.state else None
            return STATEFUL_OPS[node.op](**operands, state=state, batch=batch, **node.attrs)
        return OPS[node.op](**operands, **node.attrs)

    def _operand(self, tensor: Tensor | None, values: Mapping[Tensor, NDArray[Any]]) -> Any:
        if tensor is None:
            return None
        return self._weights.get(tensor) if isinstance(tensor, Weight) else values[tensor]


def _make_state(state: State, limits: Limits) -> Any:
    if isinstance(state, KVState):
        return KVCache(state, limits)
    assert isinstance(state, RecurrentState)
    shape = (limits.n_slots, *state.shape)
    return Arena(int(np.prod(shape)) * 4, f"numpy state {state.name}").view(0, shape, np.float32)
