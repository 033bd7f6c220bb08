"""Operations compiled by MLX: Python builds the graph of a kind of step once, and later steps reuse it.

A step of one token of each sequence asks for the same arrays as any other, of the same sizes if its contexts have as
many blocks, which are rounded up to few numbers. The first such step notes how each array is computed on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from pumice.plugin.unstable import Batch
from pumice_mlx.step import Make, StepArrays, can_pack, pack, uploaded

Arrays = list[mx.array]
Compute = Callable[[Arrays, StepArrays], Arrays]
"""Computes outputs from inputs and the arrays of a step, and updates states."""


class Updated(Protocol):
    """A state of sequences, which steps update."""

    @property
    def arrays(self) -> Arrays: ...

    def put(self, arrays: Sequence[mx.array]) -> None: ...


def is_alike(batch: Batch) -> bool:
    """Return True for one token of each sequence; output rows are all of them in order, or some."""
    n_tokens, n_outputs = len(batch.tokens), len(batch.output_ids)
    has_order = n_outputs < n_tokens or np.array_equal(batch.output_ids, np.arange(n_tokens))
    return n_tokens == len(batch.slots) and has_order


class Compiled:
    """A function compiled for each number of tokens and outputs.

    Attributes:
        made: how each array of a step is computed; None before the first call.
        packs: the arrays of a step are copied to the device together, and are parts of them within its graph.
    """

    def __init__(self, compute: Compute, states: Sequence[Updated], packs: bool = False) -> None:
        self._compute = compute
        self.packs = packs
        self._states = states
        self.made: Mapping[Hashable, Make] | None = None
        self._compiled: dict[Hashable, Callable[[Arrays, Arrays, list[Arrays]], tuple[Arrays, list[Arrays]]]] = {}
        self._step: StepArrays | None = None  # whose graph is being built

    def __call__(self, inputs: Arrays, step: StepArrays) -> Arrays:
        """Return the outputs of a step. Raises NotAlike if it asks for arrays that the first one did not ask for."""
        if self.made is None:
            self.made = self._arrays_of(inputs, step)
        if self.packs and step.packed is None:
            prepare([self], [step])
        packed = step.packed if self.packs else None
        layout = packed.layout if packed else ()
        key = (layout, *sorted((str(size), n) for size, n in step.batch.sizes.items()))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = mx.compile(self._build)
        in_row = {key for key, _, _ in layout}
        arrays = [step.array(key, make) for key, make in self.made.items() if key not in in_row]
        arrays += [packed.row] if packed else []
        states = [state.arrays for state in self._states]
        self._step = step
        try:
            outputs, updated = compiled(inputs, arrays, states)
        finally:
            self._step = None
            self._put(states)
        self._put(updated)
        return outputs

    def _arrays_of(self, inputs: Arrays, step: StepArrays) -> Mapping[Hashable, Make]:
        """Return how a step computes its arrays; its operations are not evaluated, so that no kernels are built."""
        states, first = [state.arrays for state in self._states], StepArrays(step.batch, step.inputs, alike=True)
        self._put([[mx.array(array) for array in arrays] for arrays in states])  # storing changes these
        try:
            self._compute(inputs, first)
        finally:
            self._put(states)
        return first.made

    def _build(self, inputs: Arrays, arrays: Arrays, states: list[Arrays]) -> tuple[Arrays, list[Arrays]]:
        assert self._step is not None
        assert self.made is not None
        step, packed = StepArrays(self._step.batch, self._step.inputs, alike=True), self._step.packed
        parts = packed.parts(arrays.pop()) if self.packs and packed else {}
        apart = [key for key in self.made if key not in parts]
        step.complete({**dict(zip(apart, arrays, strict=True)), **parts})
        self._put(states)
        return self._compute(inputs, step), [list(state.arrays) for state in self._states]

    def _put(self, states: Sequence[Sequence[mx.array]]) -> None:
        for state, arrays in zip(self._states, states, strict=True):
            state.put(arrays)


def prepare(parts: Sequence[Compiled], steps: Sequence[StepArrays]) -> None:
    """Copy the arrays of consecutive steps to the device together; a copy may wait for the device."""
    made: dict[Hashable, Make] = {}
    for part in parts:
        made.update(part.made or {})
    arrays = {key: [np.ascontiguousarray(make(step)) for step in steps] for key, make in made.items()}
    packed = {key: of_steps for key, of_steps in arrays.items() if can_pack(of_steps)} if parts[0].packs else {}
    for step, row in zip(steps, pack(packed), strict=True) if packed else ():
        step.packed = row
    for key in arrays.keys() - packed.keys():
        for step, array in zip(steps, uploaded(arrays[key]), strict=True):
            step.take(key, array)
