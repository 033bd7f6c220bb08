"""Steps compiled by MLX: Python builds the graph of a kind of step once, and later steps reuse it.

A step of one token of each sequence asks for the same arrays as any other, of the same sizes if its contexts have as
many blocks, which are rounded up to few numbers. The first such step notes how each array is computed on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from pumice_mlx.step import Make, StepArrays, uploaded

if TYPE_CHECKING:
    from pumice.plugin import Batch

Arrays = list[mx.array]
Compiled = Callable[[Arrays, Arrays, list[Arrays]], tuple[Arrays, list[Arrays]]]


class Updated(Protocol):
    """A state of sequences, which steps update."""

    @property
    def arrays(self) -> Arrays: ...

    def put(self, arrays: Sequence[mx.array]) -> None: ...


class Computes(Protocol):
    """The compiled function: outputs by name, from inputs by name; it updates the states."""

    @property
    def states(self) -> Sequence[Updated]: ...

    def outputs(self, given: Mapping[str, mx.array], step: StepArrays) -> dict[str, mx.array]: ...


def is_alike(batch: Batch) -> bool:
    """Return True for one token of each sequence."""
    return len(batch.tokens) == len(batch.slots)


class CompiledSteps:
    """The compiled steps of a program, by the numbers of their tokens and outputs."""

    def __init__(self, program: Computes) -> None:
        self._program = program
        self._made: dict[Hashable, Make] | None = None
        self._compiled: dict[Hashable, Compiled] = {}
        self._names: list[str] = []  # of the outputs
        self._step: StepArrays | None = None  # whose graph is being built

    def __call__(self, given: Mapping[str, mx.array], step: StepArrays) -> dict[str, mx.array]:
        """Return the outputs of a step. Raises NotAlike if it asks for arrays that the first one did not ask for."""
        if self._made is None:
            first = self._program.outputs(given, step)
            self._made, self._names = step.made, list(first)
            return first
        key = tuple(sorted((str(size), n) for size, n in step.batch.sizes.items()))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = mx.compile(self._graph(list(given)))
        arrays = [step.array(key, make) for key, make in self._made.items()]
        states = [state.arrays for state in self._program.states]
        self._step = step
        try:
            outputs, updated = compiled(list(given.values()), arrays, states)
        finally:
            self._step = None
            self._put(states)
        self._put(updated)
        return dict(zip(self._names, outputs, strict=True))

    def prepare(self, steps: Sequence[StepArrays]) -> None:
        """Copy the arrays of consecutive steps to the device together; a copy may wait for the device."""
        for key, make in (self._made or {}).items():
            for step, array in zip(steps, uploaded([make(step) for step in steps]), strict=True):
                step.take(key, array)

    def _graph(self, names: list[str]) -> Compiled:
        def build(given: Arrays, arrays: Arrays, states: list[Arrays]) -> tuple[Arrays, list[Arrays]]:
            assert self._step is not None
            assert self._made is not None
            step = StepArrays(self._step.batch, self._step.inputs, alike=True)
            step.complete(dict(zip(self._made, arrays, strict=True)))
            self._put(states)
            outputs = self._program.outputs(dict(zip(names, given, strict=True)), step)
            return list(outputs.values()), [list(state.arrays) for state in self._program.states]

        return build

    def _put(self, states: Sequence[Sequence[mx.array]]) -> None:
        for state, arrays in zip(self._program.states, states, strict=True):
            state.put(arrays)
