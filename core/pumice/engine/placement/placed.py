"""Graphs of a model placed on devices in segments and, once compiled, their programs and caches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from numpy.typing import NDArray

from pumice.architecture import ALIGN, DRAFT, FEATURES, MAIN
from pumice.backend import Backend, Capabilities, Program
from pumice.backend.pick import Ask
from pumice.backend.step import Batch, Limits, Pending, Step
from pumice.engine.placement.placement import place_like
from pumice.engine.placement.programs import Pipeline, SegmentProgram, summed
from pumice.engine.placement.sizing import Activations, Held, activations_of, held_by, uses_of
from pumice.errors import RequestError
from pumice.graph import Graph, RecurrentState, Segment, Tensor, concrete, format_graph, plan_memory
from pumice.graph.taps import sites_of
from pumice.tracing import EMBED, MEDIA_GRAPHS, SPEAK, prompts_of

_MEDIA = frozenset(MEDIA_GRAPHS.values())
LATER = _MEDIA | {ALIGN, EMBED, SPEAK, DRAFT, FEATURES}
"""Graphs that are compiled on first use, not when a model is loaded."""

MAX_VARIANTS = 8
"""Variants of graphs, by the sites that are read or replaced, before one is made that has all."""

ChangedGraph = Callable[[Graph, Mapping[str, Tensor]], Graph]
"""Returns a graph in which some values can be read, or replaced, by the names of their sites."""


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
        self._reads_memory = graph.reads_memory
        self._plans = [plan_memory(segment, limits.sizes) for segment in self.segments]

    @property
    def title(self) -> str:
        """The backends of the segments, for messages."""
        return ", ".join(dict.fromkeys(self._backends[segment.backend].title for segment in self.segments))

    @property
    def program(self) -> Program | None:
        """The program that computes steps; None until it is compiled."""
        return self.steps.program if self.steps else None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the program; none until it is compiled."""
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
        if self._reads_memory and batch.memory is None:  # kernels would follow addresses that nobody wrote
            raise RequestError("the model reads its prompt with an encoder, whose result this step does not have")
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
            self.steps.close()
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


class PlacedModel:
    """A model's graphs, each node of which goes to the first backend that supports it.

    Args:
        graphs: graphs by name; that of steps in general is ``MAIN``.
        backends: backends in order of preference.
        limits: largest step, and size of the caches.
        place: returns the segments of each graph.
        has_prompts: graphs have their expansions for steps in which every sequence begins, too, if they have any.

    Attributes:
        graphs: placed graphs by name.
        prompts: their expansions for prompts.
        backends: backends in order of preference.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        backends: Sequence[tuple[str, Backend]],
        limits: Limits,
        place: Callable[[Sequence[Graph]], Sequence[Sequence[Segment]]],
        has_prompts: bool,
    ) -> None:
        prompts = prompts_of(graphs) if has_prompts else {}
        traced = [*graphs.values(), *prompts.values()]
        placed = [
            PlacedGraph(graph, segments, dict(backends), _limits_of(graph, limits))
            for graph, segments in zip(traced, place(traced), strict=True)
        ]
        self.backends = backends
        self.graphs = dict(zip(graphs, placed, strict=False))
        self.prompts = dict(zip(prompts, placed[len(graphs) :], strict=True))
        self._limits = limits
        self._has_prompts = has_prompts
        self._derived: dict[tuple[ChangedGraph, str, tuple[str, ...]], PlacedGraph] = {}

    @property
    def main(self) -> PlacedGraph:
        """The graph that generates."""
        return self.graphs[MAIN]

    @cached_property
    def sites(self) -> Mapping[str, Tensor]:
        """The values of the main graph that its variants read or replace; its form for media has them, too."""
        return sites_of(self.main.graph)

    def variant(self, make: ChangedGraph, sites: Collection[str], name: str = MAIN) -> PlacedGraph:
        """Return the main graph, or its form for media, as ``make`` changes it at these sites, compiled on first use.

        Its nodes lie where those of the graph lie, and use its weights and caches. It is changed at all sites if
        many other variants are compiled. Raises BackendError.
        """
        key = make, name, tuple(sorted(sites))
        if key not in self._derived and len(self._derived) >= MAX_VARIANTS:
            key = make, name, tuple(sorted(self.sites))
        if key not in self._derived:
            origin = self.graphs[name]
            variant = make(origin.graph, {site: self.sites[site] for site in key[2]})
            limits = _limits_of(variant, self._limits)
            segments = place_like(variant, origin.placed, self.backends, limits)
            placed = PlacedGraph(variant, segments, dict(self.backends), limits)
            placed.compile()
            self._derived[key] = placed
        return self._derived[key]

    def changed(self, graphs: Mapping[str, Graph]) -> PlacedModel:
        """Return the model with other forms of its graphs, whose nodes, weights and states lie where they lay."""

        def place(traced: Sequence[Graph]) -> list[list[Segment]]:
            return [
                place_like(graph, before.placed, self.backends, _limits_of(graph, self._limits))
                for graph, (_, before) in zip(traced, self._named, strict=True)
            ]

        return PlacedModel(graphs, self.backends, self._limits, place, self._has_prompts)

    def compile(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Compile the graphs that are not compiled ``LATER``. Raises BackendError, for example if memory runs out.

        ``progress`` is called after each segment with the numbers of compiled segments and of all.
        """
        first = [placed for name, placed in self._named if name not in LATER]
        n_done, n_all = 0, sum(len(placed.segments) for placed in first)

        def compiled() -> None:
            nonlocal n_done
            n_done += 1
            if progress:
                progress(n_done, n_all)

        try:
            for placed in first:
                placed.compile(compiled)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the programs; the backends belong to the caller."""
        for placed in [*self._derived.values(), *(placed for _, placed in self._named)]:
            placed.close()

    def wait_until_prepared(self) -> None:
        """Wait until the programs have prepared steps of all sizes."""
        for program in self._programs:
            program.wait_until_prepared()

    def wait_until_settled(self) -> None:
        """Wait until the programs prepare nothing beside steps any more, as measurements need it."""
        for program in self._programs:
            program.wait_until_settled()

    def uncompiled(self, names: set[str]) -> list[PlacedGraph]:
        """Return the graphs of these names, also those for prompts, that are not compiled."""
        return [placed for name, placed in self._named if name in names and placed.program is None]

    @property
    def backends_used(self) -> list[str]:
        """Names of the backends of the main graph, the one with most nodes first."""
        nodes = summed({segment.backend: len(segment.nodes)} for segment in self.main.segments)
        return sorted(nodes, key=lambda name: -nodes[name])

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose, over all backends."""
        return summed(steps.memory for steps in self._steps)

    @property
    def held(self) -> list[Held]:
        """Bytes of the compiled programs, by device, layer and part."""
        compiled = [placed for _, placed in self._named if placed.program]
        segments: list[Segment] = [segment for placed in compiled for segment in placed.placed]
        activations = [n_bytes for placed in compiled for n_bytes in placed.activations]
        backends = dict(self.backends)
        return held_by(uses_of(zip(segments, activations, strict=True), backends), segments, backends, self._limits)

    @property
    def host_weights(self) -> list[NDArray[Any]]:
        """Arrays of host memory that steps read as weights."""
        return [array for program in self._programs for array in program.host_weights]

    def describe(self) -> str:
        """Return the placed graphs as text."""
        others = {ALIGN, EMBED, SPEAK, *_MEDIA}
        named = [(f"graph {name}", placed) for name, placed in self.graphs.items() if name not in others]
        if len(named) + len(self.prompts) == 1:
            return self.main.describe()
        named += [(f"graph {name}, of prompts", placed) for name, placed in self.prompts.items()]
        return "\n".join(f"{title}\n{placed.describe()}" for title, placed in named)

    @property
    def _named(self) -> list[tuple[str, PlacedGraph]]:
        return [*self.graphs.items(), *self.prompts.items()]

    @property
    def _steps(self) -> list[SegmentProgram]:
        every = [*(placed for _, placed in self._named), *self._derived.values()]
        return [placed.steps for placed in every if placed.steps]

    @property
    def _programs(self) -> list[Program]:
        return [steps.program for steps in self._steps]


def _limits_of(graph: Graph, limits: Limits) -> Limits:
    """Return limits for a graph: logits have few rows, hidden states one per token."""
    return limits if "logits" in graph.outputs else replace(limits, n_outputs=limits.n_batch)
