"""A graph placed on devices in segments and, once compiled, its program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from numpy.typing import NDArray

from pumice.backend import Backend, Program
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Limits, Pending, Step
from pumice.engine.placement.pipeline import Pipeline
from pumice.engine.placement.placement import Activations, activations_of
from pumice.errors import RequestError
from pumice.graph import Graph, RecurrentState, Segment, concrete, format_graph, plan_memory


class PlacedGraph:
    """One graph of a model.

    ``placed``: its segments before their backends rewrite them.
    """

    def __init__(
        self,
        graph: Graph,
        placed: Sequence[Segment],
        backends: Mapping[str, Backend],
        limits: Limits,
    ) -> None:
        self.graph = graph
        self.placed = placed
        self.segments = [backends[segment.backend].rewrite(segment) for segment in placed]
        self.program: Program | None = None
        self.keeps_states = False  # True if it has recurrent states and all can be copied
        self._backends = backends
        self._limits = limits
        self._plans = [plan_memory(segment, limits.sizes) for segment in self.segments]

    def compile(self, compiled: Callable[[], None] = lambda: None) -> None:
        """Compile every segment by its backend; ``compiled`` is called after each. Raises BackendError."""
        with ExitStack() as stack:
            programs = []
            for segment, plan in zip(self.segments, self._plans, strict=True):
                programs.append(self._backends[segment.backend].compile(segment, plan, self._limits))
                stack.callback(programs[-1].close)
                compiled()
            stack.pop_all()
        stateful = [
            program
            for segment, program in zip(self.segments, programs, strict=True)
            if any(isinstance(state, RecurrentState) for state in segment.states)
        ]
        self.keeps_states = bool(stateful) and all(program.capabilities.copies_slots for program in stateful)
        takes_one = self.graph.block is not None  # a block is one step, whose results pass to others
        alone = len(programs) == 1 and (takes_one or programs[0].capabilities.max_steps != 1)
        self.program = programs[0] if alone else Pipeline(self.segments, programs, partial(step_inputs, self.graph))

    def submit(
        self, batch: Batch, ask: Ask | None = None, behind: Pending | None = None, after: Pending | None = None
    ) -> Pending:
        """Submit a step. Raises RequestError for an invalid or missing input."""
        assert self.program is not None, "compile comes first"
        inputs = step_inputs(self.graph, batch)
        pending = self.program.submit(Step(batch, inputs, ask, behind, after=after))
        is_single = ask is not None and (ask.n_drafted > 0 or len(ask.numbers) == 1)
        gives_more = is_single and len(self.graph.outputs) > 1
        return pending if ask and not gives_more else _GraphStep(self.graph, inputs, pending)

    def finish(self) -> None:
        """Wait for the released steps."""
        if self.program is not None:
            self.program.finish()

    @property
    def lost(self) -> bool:
        """True if the last ``run`` failed and affected earlier steps."""
        return self.program is not None and self.program.lost

    @property
    def activations(self) -> list[Activations]:
        """Bytes of activations of each segment's program."""
        pairs = zip(self._plans, self.placed, strict=True)
        return [activations_of(plan, segment, self._limits.sizes) for plan, segment in pairs]

    def describe(self) -> str:
        return format_graph(self.segments, self._plans, self.graph.n_layer)

    def close(self) -> None:
        if self.program is not None:
            self.program.close()
        self.program = None


class _GraphStep(Pending):
    """A step with the outputs of a graph, some of which may be its inputs."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Any], pending: Pending) -> None:
        self._graph = graph
        self._inputs = inputs
        self._pending = pending

    def outputs(self) -> dict[str, NDArray[Any]]:
        values = {**self._inputs, **self._pending.outputs()}
        return {name: values[tensor.name] for name, tensor in self._graph.outputs.items()}

    def tokens(self) -> Iterator[Ahead]:
        return self._pending.tokens()

    def unwrapped(self) -> Pending:
        return self._pending.unwrapped()


def step_inputs(graph: Graph, batch: Batch) -> dict[str, NDArray[Any]]:
    """Return the inputs of a graph for a step; sets ``batch.more_sizes``."""
    brought: dict[str, Any] = {"tokens": batch.tokens, "positions": batch.positions, "output_ids": batch.output_ids}
    brought |= {**batch.inputs, **batch.passed}
    sizes = dict(batch.sizes)
    values = {}
    for name, tensor in graph.inputs.items():
        if name not in brought and tensor.fill is None:
            raise RequestError(f"the input {tensor} is missing")
        values[name] = brought[name] if tensor.fill is None or name in brought else tensor.fill(batch)
        first, shape = tensor.shape[0], values[name].shape
        if isinstance(first, str) and shape:
            sizes.setdefault(first, shape[0])
        if shape != concrete(tensor.shape, sizes):
            raise RequestError(f"the input {tensor} has the wrong shape {list(shape)}")
    batch.more_sizes = {name: sizes[name] for name in graph.sizes if name in sizes}
    return values
