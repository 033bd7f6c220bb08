"""A graph placed on devices in segments and, once compiled, its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from numpy.typing import NDArray

from pumice.backend import Backend, Capabilities, Program
from pumice.backend.pick import Ask
from pumice.backend.step import Batch, Limits, Pending, Step
from pumice.engine.placement.guarded import SegmentProgram
from pumice.engine.placement.pipeline import Pipeline
from pumice.engine.placement.placement import Activations, activations_of
from pumice.errors import RequestError
from pumice.graph import Graph, RecurrentState, Segment, concrete, format_graph, plan_memory


class PlacedGraph:
    """One graph of a model.

    Attributes:
        graph: the graph.
        placed: its segments before their backends rewrite them.
        segments: its segments as they are compiled.
        steps: computes its steps, once compiled: the program of its only segment, or the pipeline of several.
        keeps_states: True if it has recurrent states and all can be copied, once compiled.
    """

    def __init__(
        self, graph: Graph, placed: Sequence[Segment], backends: Mapping[str, Backend], limits: Limits
    ) -> None:
        self.graph = graph
        self.placed = placed
        self.segments = [backends[segment.backend].rewrite(segment) for segment in placed]
        self.steps: SegmentProgram | None = None
        self.keeps_states = False
        self._backends = backends
        self._limits = limits
        self._plans = [plan_memory(segment, limits.sizes) for segment in self.segments]

    @property
    def program(self) -> Program | None:
        """The program that computes steps; None until it is compiled."""
        return self.steps.program if self.steps else None

    @property
    def capabilities(self) -> Capabilities:
        """Those of the program; none until it is compiled."""
        return self.steps.program.capabilities if self.steps else Capabilities()

    def compile(self, compiled: Callable[[], None] = lambda: None) -> None:
        """Compile every segment by its backend; ``compiled`` is called after each. Raises BackendError."""
        with ExitStack() as stack:
            programs: list[SegmentProgram] = []
            for segment, plan in zip(self.segments, self._plans, strict=True):
                backend = self._backends[segment.backend]
                program = backend.compile(segment, plan, self._limits)
                programs.append(SegmentProgram(program, backend.title, segment.outputs))
                stack.callback(programs[-1].call, program.close)
                compiled()
            stack.pop_all()
        stateful = [
            part.program
            for segment, part in zip(self.segments, programs, strict=True)
            if any(isinstance(state, RecurrentState) for state in segment.states)
        ]
        self.keeps_states = bool(stateful) and all(program.capabilities.copies_slots for program in stateful)
        takes_one = self.graph.block is not None  # a block is one step, whose results pass to others
        if len(programs) == 1 and (takes_one or programs[0].program.capabilities.max_steps != 1):
            self.steps = programs[0]
        else:
            self.steps = SegmentProgram(Pipeline(self.segments, programs, partial(step_inputs, self.graph)))

    def submit(
        self,
        batch: Batch,
        ask: Ask | None = None,
        seen: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
    ) -> Pending:
        """Submit a step; ``seen`` gets its outputs before they are returned.

        Raises RequestError for an invalid or missing input.
        """
        assert self.steps is not None, "compile comes first"
        inputs = step_inputs(self.graph, batch)

        def receive(outputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
            values = {**inputs, **outputs}  # inputs may be outputs
            named = {name: values[tensor.name] for name, tensor in self.graph.outputs.items()}
            if seen is not None:
                seen(named)
            return named

        is_single = ask is not None and (ask.n_drafted > 0 or len(ask.numbers) == 1)
        gives_more = is_single and len(self.graph.outputs) > 1
        step = Step(batch, inputs, ask)
        return self.steps.submit(step, receive if ask is None or gives_more else None)

    def finish(self) -> None:
        """Wait for the released steps."""
        if self.steps is not None:
            self.steps.call(self.steps.program.finish)

    @property
    def lost(self) -> bool:
        """True if the last step failed and affected earlier steps."""
        return self.steps is not None and self.steps.program.lost

    @property
    def activations(self) -> list[Activations]:
        """Bytes of activations of each segment's program."""
        pairs = zip(self._plans, self.placed, strict=True)
        return [activations_of(plan, segment, self._limits.sizes) for plan, segment in pairs]

    def describe(self) -> str:
        return format_graph(self.segments, self._plans, self.graph.n_layer)

    def close(self) -> None:
        if self.steps is not None:
            self.steps.call(self.steps.program.close)
        self.steps = None


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
