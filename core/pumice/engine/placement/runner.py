"""A model's placed and compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import DRAFT, ENCODER, FEATURES, MAIN, MEDIA, MEDIA_TOGETHER, STREAM
from pumice.backend import Backend, CacheForm, Capabilities, KernelTime, Program
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Limits, Passed, Pending
from pumice.engine.placement.costs import StepPart, step_parts
from pumice.engine.placement.held import Held, held_by
from pumice.engine.placement.placed import PlacedGraph
from pumice.engine.placement.placement import PlacementRules, place_layers, uses_of
from pumice.engine.placement.sizing import states_of_all
from pumice.engine.placement.tracing import EMBED, MEDIA_GRAPHS, SPEAK, STREAMED, apart_from_stream, prompts_of
from pumice.errors import BackendError
from pumice.graph import DraftBlock, Graph, RecurrentState, Segment, row_size
from pumice.graph.media import ROWS

_MEDIA = frozenset(MEDIA_GRAPHS.values())
LATER = _MEDIA | {EMBED, SPEAK, DRAFT, FEATURES}
"""Graphs that are compiled on first use, not when a model is loaded."""


class Observer(Protocol):
    """Observes values inside the steps of a model."""

    def watch(self, graph: Graph) -> Graph:
        """Return the graph with additional outputs."""

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a step's outputs by name, which are valid until it returns."""


class _Watched(Pending):
    """A step whose outputs are passed to an observer first; tokens are passed on."""

    def __init__(self, pending: Pending, show: Callable[[Mapping[str, NDArray[Any]]], None]) -> None:
        self._pending = pending
        self._show = show

    def outputs(self) -> Mapping[str, NDArray[Any]]:
        outputs = self._pending.outputs()
        self._show(outputs)
        return outputs

    def tokens(self) -> Iterator[Ahead]:
        return self._pending.tokens()

    def unwrapped(self) -> Pending:
        return self._pending.unwrapped()


def _limits_of(graph: Graph, limits: Limits) -> Limits:
    """Return limits for a graph: logits have few rows, hidden states one per token."""
    return limits if "logits" in graph.outputs else replace(limits, n_outputs=limits.n_batch)


def _is_invariant(backend: Backend) -> bool:
    """Return True if the option ``batch_invariant`` is set; a plugin may have other options, or keep none."""
    return bool(getattr(getattr(backend, "options", None), "batch_invariant", False))


class Runner:
    """Runs one model's batches.

    Each node goes to the first of ``backends`` that supports it. Steps in which every sequence begins run the graph's
    expansion for prompts, if it has one and the first backend is not ``batch_invariant``. ``observe`` is called with
    the outputs of each step of the main graph, which then has no separate expansion.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        backends: Sequence[tuple[str, Backend]],
        limits: Limits,
        rules: PlacementRules | None = None,
        progress: Callable[[int, int], None] | None = None,
        observe: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
    ) -> None:
        self.limits = limits
        self.recurrent = any(isinstance(state, RecurrentState) for state in states_of_all(graphs))
        self._backends = backends
        self._progress = progress
        self._observe = observe
        graphs = apart_from_stream(graphs) if backends[0][1].offload else graphs  # GPUs pick tokens by themselves
        prompts = {} if observe or _is_invariant(backends[0][1]) else prompts_of(graphs)
        traced = [*graphs.values(), *prompts.values()]
        placed = place_layers(traced, backends, limits, rules or PlacementRules())
        graphs_and_prompts = [
            PlacedGraph(graph, segments, dict(backends), _limits_of(graph, limits))
            for graph, segments in zip(traced, placed, strict=True)
        ]
        self._graphs = dict(zip(graphs, graphs_and_prompts, strict=False))
        self._prompts = dict(zip(prompts, graphs_and_prompts[len(graphs) :], strict=True))
        self._last = self._main
        self._media_failure: Exception | None = None

    @property
    def main_segments(self) -> Sequence[Segment]:
        """The segments of the graph that generates, as they were placed."""
        return self._main.placed

    def costs(self) -> list[StepPart]:
        """Return the costs of ``main_segments``."""
        return step_parts(self.main_segments, self._main.graph, self.limits, dict(self._backends))

    @property
    def backends(self) -> Sequence[tuple[str, Backend]]:
        """The backends in order of preference."""
        return self._backends

    def compile(self) -> None:
        """Compile every segment by its backend. Raises BackendError, for example when memory runs out."""
        first = [placed for name, placed in self._graphs.items() if name not in LATER]
        first += [placed for name, placed in self._prompts.items() if name not in LATER]
        n_done, n_all = 0, sum(len(placed.segments) for placed in first)

        def compiled() -> None:
            nonlocal n_done
            n_done += 1
            if self._progress:
                self._progress(n_done, n_all)

        try:
            for placed in first:
                placed.compile(compiled)
        except BaseException:
            self.close()
            raise

    def compiles_media(self, graph: str, forms: Collection[bool]) -> bool:
        """Return True if ``compile_media`` would compile something."""
        return self._media_failure is None and bool(self._media_to_compile(graph, forms))

    def compile_media(self, graph: str, forms: Collection[bool]) -> None:
        """Compile what computes a graph for steps with media, on first use.

        Args:
            graph: name of the graph for steps without media.
            forms: values of ``Batch.together`` in the steps.

        Raises BackendError; a failure is remembered, since each attempt would delay other requests.
        """
        try:
            for placed in self._media_to_compile(graph, forms) if self._media_failure is None else ():
                placed.compile()
        except Exception as error:
            self._media_failure = error
        if self._media_failure is not None:
            raise BackendError(
                f"media: the program for prompts with images cannot be compiled: {self._media_failure}; requests "
                "without images continue; if memory is short, load the model with a smaller n_ctx or n_parallel"
            ) from self._media_failure

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Compute logits ``[n_outputs, n_vocab]``, valid until the next run."""
        return self.outputs(batch)["logits"]

    def outputs(self, batch: Batch, graph: str = MAIN) -> Mapping[str, NDArray[Any]]:
        """Compute a graph's outputs by name, valid until the next run. Raises RequestError for an invalid input."""
        return self.submit(batch, graph=graph).outputs()

    def submit(
        self,
        batch: Batch,
        ask: Ask | None = None,
        behind: Pending | None = None,
        graph: str = MAIN,
        after: Pending | None = None,
    ) -> Pending:
        """Submit a step of a graph. Raises RequestError for an invalid or missing input."""
        if ROWS in batch.inputs:
            graph = MEDIA_GRAPHS.get((graph, batch.together), graph)
        placed = (self._prompts if not ask and self._is_prompts(batch, graph) else self._graphs)[graph]
        if placed.program is None:
            placed.compile()
        in_turn = placed is not self._main and self.capabilities.n_in_flight == 1
        if in_turn:
            self._main.finish()
        self._last = placed
        pending = placed.submit(batch, ask, behind, after)
        if in_turn:
            return _Watched(pending, lambda outputs: placed.finish())  # the main graph's programs may run next
        return _Watched(pending, self._observe) if placed is self._main and self._observe else pending

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the main graph's program, reduced by irreversible states and observers.

        Steps with drafts may run ``STREAMED``, too.
        """
        if self._main.program is None or self._observe:
            return Capabilities()
        can, streamed = self._main.program.capabilities, self._graphs.get(STREAMED)
        if can.settles_states and streamed and streamed.program:
            can = replace(can, settles_states=streamed.program.capabilities.settles_states)
        return can if self.keeps_states or not self.recurrent else replace(can, max_steps=0)

    def steps_of(self, graph: str) -> int:
        """Return the consecutive steps of a graph whose tokens its program picks; 0: none, or it is not compiled."""
        program = self._graphs[graph].program
        return program.capabilities.max_steps if program and program.capabilities.decides else 0

    def max_picked(self, graph: str) -> int:
        """Return the output rows of a step of a graph after which its program picks tokens of a block."""
        program = self._graphs[graph].program
        return program.capabilities.max_picked if program else 0

    @property
    def takes(self) -> bool:
        """True if a step may be submitted after one that is still running: all steps are of one program."""
        is_lone = not (self._prompts or self._observe)
        return is_lone and self.capabilities.takes and self.listening is None

    def passes_on(self, graphs: Collection[str]) -> tuple[str, int] | None:
        """Return the backend and device on which steps of these graphs pass results to each other; None if they cannot.

        Steps of another runner with the same backends pass them, too.
        """
        placed = [self._graphs[name] for name in graphs]
        devices = {(segment.backend, segment.device) for item in placed for segment in item.segments}
        is_whole = len(devices) == 1 and all(len(item.segments) == 1 for item in placed)
        passes = all(item.program is not None and item.program.capabilities.passes for item in placed)
        return devices.pop() if is_whole and passes else None

    def passed(self, pending: Pending, graph: str, output: str, n_rows: int) -> Passed:
        """Return the first rows of an output of a pending step of a graph, as an input of another step."""
        tensor = self._graphs[graph].graph.outputs[output]
        return Passed(pending, tensor.name, (n_rows, *map(int, tensor.shape[1:])))

    def position_inputs(self, graph: str) -> dict[str, int]:
        """Return the inputs of a graph that have the positions of tokens plus a number, with this number."""
        inputs = self._graphs[graph].graph.inputs
        return {name: tensor.added for name, tensor in inputs.items() if tensor.added is not None}

    def compile_drafts(self) -> None:
        """Compile the graphs of the layer that drafts now, not on first use. Raises BackendError."""
        for placed in (self._graphs[name] for name in (FEATURES, DRAFT) if name in self._graphs):
            if placed.program is None:
                placed.compile()

    def is_compiled(self, graph: str) -> bool:
        """Return True if a graph is compiled; some are compiled on first use."""
        return self._graphs[graph].program is not None

    def picks(self, batch: Batch) -> bool:
        """Return True if the program can pick tokens after such a batch."""
        if self._is_prompts(batch, MAIN):
            return False
        return self.capabilities.max_steps > 0 and ROWS not in batch.inputs

    def _is_prompts(self, batch: Batch, graph: str) -> bool:
        """Return True if the expansion for prompts computes a batch: it exists, and every sequence begins."""
        return graph in self._prompts and not batch.positions[batch.seq_starts[:-1]].any()

    @property
    def lost(self) -> bool:
        """True if the last ``run`` failed and affected earlier steps."""
        return self._last.lost

    @property
    def program(self) -> Program | None:
        """The program of the main graph; None until it is compiled."""
        return self._main.program

    @property
    def keeps_states(self) -> bool:
        """True if there are recurrent states that can be copied; known once compiled."""
        return self._main.keeps_states

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states between slots, for each pair of source and target."""
        assert self._main.program is not None, "compile comes first"
        self._main.program.copy_slots(pairs)

    @property
    def cache_form(self) -> CacheForm | None:
        """The bytes of blocks and slots that can leave the devices; None if they cannot."""
        return self._main.program.cache_form if self._main.program else None

    def read_blocks(self, window: int, blocks: Sequence[int]) -> NDArray[np.uint8]:
        """Return a copy of blocks; see ``Program.read_blocks``."""
        assert self._main.program is not None, "compile comes first"
        return self._main.program.read_blocks(window, blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Write what ``read_blocks`` returned."""
        assert self._main.program is not None, "compile comes first"
        self._main.program.write_blocks(window, blocks, data)

    def read_slots(self, slots: Sequence[int]) -> NDArray[np.uint8]:
        """Return a copy of the recurrent states of slots."""
        assert self._main.program is not None, "compile comes first"
        return self._main.program.read_slots(slots)

    def write_slots(self, slots: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Write what ``read_slots`` returned."""
        assert self._main.program is not None, "compile comes first"
        self._main.program.write_slots(slots, data)

    @property
    def n_vocab(self) -> int:
        """Logits per token, or rows of the token table in models without logits."""
        main = self._main.graph
        if "logits" in main.outputs:
            return int(main.outputs["logits"].shape[-1])
        tables = [node for node in main.nodes if node.op == "embedding" and node.inputs["ids"].name == "tokens"]
        return int(tables[0].weight("weight").shape[0]) if tables else 0

    @property
    def generates(self) -> bool:
        """True if the model computes logits of growing sequences from tokens alone."""
        main = self._main.graph
        return "logits" in main.outputs and "hidden" not in main.inputs and not self.needs_whole_sequences

    @property
    def needs_whole_sequences(self) -> bool:
        """True if the main graph needs a whole sequence in one step."""
        return self.wants_whole(MAIN)

    def wants_whole(self, graph: str) -> bool:
        """Return True if a graph needs a whole sequence in one step."""
        return self._graphs[graph].graph.needs_whole_sequences

    @property
    def encodes(self) -> bool:
        """True if an encoder reads the prompt, and the main graph attends to its memory."""
        return ENCODER in self._graphs

    @property
    def media_width(self) -> int:
        """Values of a row of media in prompts; 0 if the model takes none."""
        readers = [self._graphs[name].graph.inputs for name in (MEDIA, MEDIA_TOGETHER, ENCODER) if name in self._graphs]
        return next((int(inputs[ROWS].shape[-1]) for inputs in readers if ROWS in inputs), 0)

    @property
    def embedder(self) -> str | None:
        """Name of the graph that computes hidden states, ``hidden [n_outputs, n_embd]``; None without one."""
        return next(
            (name for name in (ENCODER, EMBED, MAIN) if name in self._graphs and "hidden" in self.results(name)), None
        )

    @property
    def drafts_from_caches(self) -> bool:
        """True if the graph that drafts has no caches of its own, but reads those of the model."""
        return DRAFT in self._graphs and set(self._graphs[DRAFT].graph.states) <= set(self._graphs[MAIN].graph.states)

    @property
    def block(self) -> DraftBlock | None:
        """How the drafting graph drafts blocks of tokens, if it does."""
        return self._graphs[DRAFT].graph.block if DRAFT in self._graphs else None

    @cached_property
    def listening(self) -> str | None:
        """The graph whose steps give ``STREAM``, from which a layer drafts: ``MAIN``, another one, or none."""
        return next((name for name in (MAIN, STREAMED) if STREAM in self.results(name)), None)

    @property
    def embeds_media(self) -> bool:
        """True if prompts with media can be embedded."""
        return any(MEDIA_GRAPHS.get((self.embedder or "", form)) in self._graphs for form in (False, True))

    def results(self, graph: str) -> dict[str, int]:
        """Return the outputs of a graph by name, with their row sizes; empty for a missing graph."""
        placed = self._graphs.get(graph)
        return {name: row_size(tensor.shape) for name, tensor in placed.graph.outputs.items()} if placed else {}

    @property
    def segments(self) -> list[Segment]:
        """The segments of the main graph."""
        return self._main.segments

    @property
    def backends_used(self) -> list[str]:
        """Names of the backends in use, the one with most nodes first."""
        nodes: dict[str, int] = {}
        for segment in self.segments:
            nodes[segment.backend] = nodes.get(segment.backend, 0) + len(segment.nodes)
        return sorted(nodes, key=lambda name: -nodes[name])

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose, over all backends."""
        total: dict[str, int] = {}
        for program in (placed.program for placed in self._all if placed.program):
            for purpose, n_bytes in program.memory.items():
                total[purpose] = total.get(purpose, 0) + n_bytes
        return total

    def wait_until_prepared(self) -> None:
        """Wait until the programs have prepared steps of all sizes."""
        for placed in self._all:
            if placed.program:
                placed.program.wait_until_prepared()

    def wait_until_settled(self) -> None:
        """Wait until the programs prepare nothing beside steps any more, as measurements need it."""
        for placed in self._all:
            if placed.program:
                placed.program.wait_until_settled()

    def prepare_drafts(self) -> None:
        """Let the programs whose steps verify drafts begin to prepare them."""
        for name in {MAIN, self.listening or MAIN}:
            if (program := self._graphs[name].program) is not None:
                program.prepare_drafts()

    @property
    def prepares_drafts(self) -> bool:
        """True while a program prepares steps that verify drafts."""
        programs = [self._graphs[name].program for name in {MAIN, self.listening or MAIN}]
        return any(program.prepares_drafts for program in programs if program is not None)

    @property
    def held(self) -> list[Held]:
        """Bytes of the compiled programs, by device, layer and part."""
        compiled = [placed for placed in self._all if placed.program]
        segments = [segment for placed in compiled for segment in placed.placed]
        activations = [n_bytes for placed in compiled for n_bytes in placed.activations]
        backends = dict(self._backends)
        uses = uses_of(zip(segments, activations, strict=True), backends)
        return held_by(uses, segments, backends, self.limits)

    @property
    def host_weights(self) -> list[NDArray[Any]]:
        """Arrays of host memory that steps read as weights."""
        programs = [placed.program for placed in self._all if placed.program]
        return [array for program in programs for array in program.host_weights]

    def profile(self) -> list[KernelTime]:
        """Return the times of the last step's kernels by name, longest first."""
        times: dict[str, list[float]] = {}
        for kernel in self._last.program.profile() if self._last.program else []:
            count, total = times.get(kernel.name, (0, 0.0))
            times[kernel.name] = [count + kernel.count, total + kernel.microseconds]
        kernels = [KernelTime(name, int(count), total) for name, (count, total) in times.items()]
        return sorted(kernels, key=lambda kernel: -kernel.microseconds)

    def describe(self) -> str:
        """Return the placed graphs as text."""
        others = {EMBED, SPEAK, *_MEDIA}
        named = [(f"graph {name}", placed) for name, placed in self._graphs.items() if name not in others]
        if len(named) + len(self._prompts) == 1:
            return self._main.describe()
        named += [(f"graph {name}, of prompts", placed) for name, placed in self._prompts.items()]
        return "\n".join(f"{title}\n{placed.describe()}" for title, placed in named)

    def close(self) -> None:
        """Close the programs; the backends belong to the caller."""
        for placed in self._all:
            placed.close()

    def _media_to_compile(self, graph: str, forms: Collection[bool]) -> list[PlacedGraph]:
        names = {MEDIA_GRAPHS[graph, together] for together in forms if (graph, together) in MEDIA_GRAPHS}
        named = [*self._graphs.items(), *self._prompts.items()]
        return [placed for name, placed in named if name in names and placed.program is None]

    @property
    def _main(self) -> PlacedGraph:
        return self._graphs[MAIN]

    @property
    def _all(self) -> list[PlacedGraph]:
        return [*self._graphs.values(), *self._prompts.values()]
