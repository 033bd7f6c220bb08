"""Run the steps of a model's placed and compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from pumice.adapters import AdaptedGraphs, Adapter
from pumice.architecture import DRAFT, ENCODER, FEATURES, MAIN, MEDIA, MEDIA_TOGETHER, STREAM
from pumice.backend import Backend, Capabilities, KernelTime
from pumice.backend.pick import Ask
from pumice.backend.step import Batch, Limits, Passed, Pending
from pumice.config import Config
from pumice.engine.placement.placed import PlacedGraph, PlacedModel
from pumice.engine.placement.placement import Backends, PlacementRules, place_layers
from pumice.engine.placement.programs import SegmentProgram
from pumice.engine.placement.sizing import states_of_all
from pumice.errors import BackendError
from pumice.graph import DraftBlock, Graph, RecurrentState, Segment, row_size
from pumice.graph.media import ROWS
from pumice.graph.taps import with_outputs, with_taps
from pumice.tracing import EMBED, MEDIA_GRAPHS, STREAMED, apart_from_stream


@dataclass(frozen=True)
class ModelDescription:
    """What a model's graphs compute.

    Attributes:
        outputs: values of a row of each output, by names of graphs and outputs.
        whole: graphs that need a whole sequence in one step.
        n_vocab: logits per token, or rows of the token table in models without logits.
        generates: logits of growing sequences are computed from tokens alone.
        recurrent: there are recurrent states.
        media_width: values of a row of media in prompts; 0 if the model takes none.
        embedder: the graph that computes hidden states, ``hidden [n_outputs, n_embd]``; None without one.
        embeds_media: prompts with media can be embedded.
        listening: the graph whose steps give ``STREAM``, from which a layer drafts; None without one.
        block: how the drafting graph drafts blocks of tokens, if it does.
        drafts_from_caches: the graph that drafts has no caches of its own, but reads those of the model.
    """

    outputs: Mapping[str, Mapping[str, int]]
    whole: frozenset[str]
    n_vocab: int
    generates: bool
    recurrent: bool
    media_width: int
    embedder: str | None
    embeds_media: bool
    listening: str | None
    block: DraftBlock | None
    drafts_from_caches: bool

    @classmethod
    def of(cls, graphs: Mapping[str, Graph]) -> ModelDescription:
        """Return the description of graphs by name."""
        main, draft = graphs[MAIN], graphs.get(DRAFT)
        outputs = {
            name: {output: row_size(tensor.shape) for output, tensor in graph.outputs.items()}
            for name, graph in graphs.items()
        }
        readers = [graphs[name].inputs for name in (MEDIA, MEDIA_TOGETHER, ENCODER) if name in graphs]
        texts = (ENCODER,) if ENCODER in graphs else (EMBED, MAIN)  # a decoder's need the memory of its encoder
        embedder = next((name for name in texts if "hidden" in outputs.get(name, {})), None)
        return cls(
            outputs=outputs,
            whole=frozenset(name for name, graph in graphs.items() if graph.needs_whole_sequences),
            n_vocab=_n_vocab(main),
            generates="logits" in main.outputs and "hidden" not in main.inputs and not main.needs_whole_sequences,
            recurrent=any(isinstance(state, RecurrentState) for state in states_of_all(graphs)),
            media_width=next((int(inputs[ROWS].shape[-1]) for inputs in readers if ROWS in inputs), 0),
            embedder=embedder,
            embeds_media=any(MEDIA_GRAPHS.get((embedder or "", form)) in graphs for form in (False, True)),
            listening=next((name for name in (MAIN, STREAMED) if STREAM in outputs.get(name, {})), None),
            block=draft.block if draft else None,
            drafts_from_caches=draft is not None and set(draft.states) <= set(main.states),
        )

    @property
    def encodes(self) -> bool:
        """True if an encoder reads the prompt, and the main graph attends to its memory."""
        return ENCODER in self.outputs

    def results(self, graph: str) -> Mapping[str, int]:
        """Return the outputs of a graph by name, with their row sizes; empty for a missing graph."""
        return self.outputs.get(graph, {})


def _n_vocab(main: Graph) -> int:
    if "logits" in main.outputs:
        return int(main.outputs["logits"].shape[-1])
    tables = [node for node in main.nodes if node.op == "embedding" and node.inputs["ids"].name == "tokens"]
    return int(tables[0].weight("weight").shape[0]) if tables else 0


class Observer(Protocol):
    """Observes values inside the steps of a model."""

    def watch(self, graph: Graph) -> Graph:
        """Return the graph with additional outputs."""

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a step's outputs by name, which are valid until it returns."""


def _is_invariant(backend: Backend) -> bool:
    """Return True if the option ``batch_invariant`` is set; a plugin may have other options, or keep none."""
    return bool(getattr(getattr(backend, "options", None), "batch_invariant", False))


class Runner:
    """Runs the steps of one model.

    Steps in which every sequence begins run the graph's expansion for prompts, if it has one and the first backend is
    not ``batch_invariant``.

    Args:
        model: the model's graphs.
        backends: backends in order; each node goes to the first one that supports it.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
        progress: called after each compiled segment with the numbers of compiled segments and of all.
        observe: called with the outputs of each step of the main graph, which then has no expansion for prompts.

    Attributes:
        adapters: adapters that the graphs have, by key.
        limits: largest step, and size of the caches.
        model: what the graphs compute.
        placed: the graphs on their devices.
    """

    def __init__(
        self,
        model: AdaptedGraphs,
        backends: Backends,
        limits: Limits,
        rules: PlacementRules | None = None,
        progress: Callable[[int, int], None] | None = None,
        observe: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
    ) -> None:
        first = backends[0][1]
        self._plain, self.adapters = model.plain, dict(model.adapters)
        graphs = _for_device(model.graphs, first)
        has_prompts = not observe and not _is_invariant(first)
        self.limits = limits
        self.model = ModelDescription.of(graphs)

        def place(traced: Sequence[Graph]) -> list[list[Segment]]:
            return place_layers(traced, backends, limits, rules or PlacementRules())

        self.placed = PlacedModel(graphs, backends, limits, place, has_prompts)
        self._progress = progress
        self._observe = observe
        self._last = self.placed.main
        self._media_failure: Exception | None = None

    def compile(self) -> None:
        """Compile the graphs. Raises BackendError, for example when memory runs out."""
        self.placed.compile(self._progress)

    def adapt(self, adapters: Mapping[str, Adapter]) -> None:
        """Compile the graphs with these adapters instead of those before, while no step runs.

        Raises ModelError for an adapter that does not fit, and BackendError; nothing has changed then.
        """
        graphs = _for_device(AdaptedGraphs(self._plain, adapters).graphs, self.placed.backends[0][1])
        placed = self.placed.changed(graphs)
        placed.compile()
        self.placed.close()
        self.placed, self.adapters = placed, dict(adapters)
        self._last = placed.main

    def close(self) -> None:
        """Close the programs; the backends belong to the caller."""
        self.placed.close()

    def outputs(self, batch: Batch, graph: str = MAIN) -> Mapping[str, NDArray[Any]]:
        """Compute a graph's outputs by name, valid until the next run. Raises RequestError for an invalid input."""
        return self.submit(batch, graph=graph).outputs()

    def submit(
        self,
        batch: Batch,
        ask: Ask | None = None,
        graph: str = MAIN,
    ) -> Pending:
        """Submit a step of a graph. Raises RequestError for an invalid or missing input."""
        if ROWS in batch.inputs:
            graph = MEDIA_GRAPHS.get((graph, batch.together), graph)
        of_prompts = not ask and self._is_prompts(batch, graph)
        placed = (self.placed.prompts if of_prompts else self.placed.graphs)[graph]
        if batch.taps:
            sites = {site for rows in batch.taps for site in rows.taps.sites}
            placed = self.placed.variant(with_taps, sites, graph)
        if placed.program is None:
            placed.compile()
        return self._submit(placed, batch, ask)

    def layers(self, batch: Batch, sites: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Compute the values of ``sites``, a row for each token of a batch, valid until the next run."""
        return self._submit(self.placed.variant(with_outputs, sites), batch).outputs()

    def _submit(self, placed: PlacedGraph, batch: Batch, ask: Ask | None = None) -> Pending:
        """Submit a step of a compiled graph, after those of the main graph if their programs cannot overlap."""
        main, seen = self.placed.main, None
        if placed is main:
            seen = self._observe
        elif self.capabilities.n_in_flight == 1:
            main.finish()

            def seen(outputs: Mapping[str, NDArray[Any]]) -> None:
                placed.finish()  # the main graph's programs may run next

        self._last = placed
        return placed.submit(batch, ask, seen)

    def picks(self, batch: Batch) -> bool:
        """Return True if the program can pick tokens after such a batch."""
        if batch.taps or ROWS in batch.inputs:
            return False
        return not self._is_prompts(batch, MAIN) and self.capabilities.max_steps > 0

    @property
    def lost(self) -> bool:
        """True if the last step failed and affected earlier steps."""
        return self._last.lost

    @property
    def cache(self) -> SegmentProgram:
        """The compiled main graph, whose blocks and slots other graphs share."""
        assert self.placed.main.steps is not None, "compile comes first"
        return self.placed.main.steps

    @property
    def keeps_states(self) -> bool:
        """True if there are recurrent states that can be copied; known once compiled."""
        return self.placed.main.keeps_states

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the main graph's program, reduced by irreversible states and observers.

        Steps with drafts may run ``STREAMED``, too.
        """
        if self._observe:
            return Capabilities()
        can, streamed = self.placed.main.capabilities, self.placed.graphs.get(STREAMED)
        if self.model.recurrent and streamed and streamed.program and not streamed.capabilities.drafted:
            can = replace(can, drafted=())
        return can if self.keeps_states or not self.model.recurrent else replace(can, max_steps=0)

    @property
    def has_registers(self) -> bool:
        """True if any step may take tokens of one that is still running: all steps are of one program."""
        is_lone = not (self.placed.prompts or self._observe)
        return is_lone and self.capabilities.registers and self.model.listening is None

    def capabilities_of(self, graph: str) -> Capabilities:
        """Return the capabilities of a graph's program; those without any if it is not compiled."""
        return self.placed.graphs[graph].capabilities

    def is_compiled(self, graph: str) -> bool:
        """Return True if a graph is compiled; some are compiled on first use."""
        return self.placed.graphs[graph].program is not None

    def passes_on(self, graphs: Collection[str]) -> tuple[str, int] | None:
        """Return the backend and device on which steps of these graphs pass results to each other; None if they cannot.

        Steps of another runner with the same backends pass them, too.
        """
        placed = [self.placed.graphs[name] for name in graphs]
        devices = {(segment.backend, segment.device) for item in placed for segment in item.segments}
        is_whole = len(devices) == 1 and all(len(item.segments) == 1 for item in placed)
        passes = all(item.capabilities.registers for item in placed)
        return devices.pop() if is_whole and passes else None

    def passed(self, graph: str, output: str, n_rows: int) -> Passed:
        """Return the first rows of an output of the latest step of a graph, as an input of another step."""
        placed = self.placed.graphs[graph]
        assert placed.program is not None, "its step comes first"
        tensor = placed.graph.outputs[output]
        return Passed(placed.program, tensor.name, (n_rows, *map(int, tensor.shape[1:])))

    def compile_drafts(self) -> None:
        """Compile the graphs of the layer that drafts now, not on first use. Raises BackendError."""
        for placed in self.placed.uncompiled({FEATURES, DRAFT}):
            placed.compile()

    def prepare_drafts(self) -> bool:
        """Let the programs whose steps verify drafts begin to prepare them; return True while one does."""
        names = {MAIN, self.model.listening or MAIN}
        programs = [program for name in names if (program := self.placed.graphs[name].program) is not None]
        for program in programs:
            program.prepare_drafts()
        return any(program.prepares_drafts for program in programs)

    def compiles_media(self, graph: str, forms: Collection[bool]) -> bool:
        """Return True if ``compile_media`` would compile something."""
        return self._media_failure is None and bool(self.placed.uncompiled(_media_of(graph, forms)))

    def compile_media(self, graph: str, forms: Collection[bool]) -> None:
        """Compile what computes a graph for steps with media, on first use.

        Args:
            graph: name of the graph for steps without media.
            forms: values of ``Batch.together`` in the steps.

        Raises BackendError; a failure is remembered, since each attempt would delay other requests.
        """
        try:
            for placed in self.placed.uncompiled(_media_of(graph, forms)) if self._media_failure is None else ():
                placed.compile()
        except Exception as error:
            self._media_failure = error
        if self._media_failure is not None:
            raise BackendError(
                f"media: the program for prompts with images cannot be compiled: {self._media_failure}; requests "
                "without images continue; if memory is short, load the model with a smaller n_ctx or n_parallel"
            ) from self._media_failure

    def profile(self) -> list[KernelTime]:
        """Return the times of the last step's kernels by name, longest first."""
        times: dict[str, list[float]] = {}
        for kernel in self._last.program.profile() if self._last.program else []:
            count, total = times.get(kernel.name, (0, 0.0))
            times[kernel.name] = [count + kernel.count, total + kernel.microseconds]
        kernels = [KernelTime(name, int(count), total) for name, (count, total) in times.items()]
        return sorted(kernels, key=lambda kernel: -kernel.microseconds)

    def _is_prompts(self, batch: Batch, graph: str) -> bool:
        """Return True if the expansion for prompts computes a batch: it exists, and every sequence begins."""
        return graph in self.placed.prompts and not batch.positions[batch.seq_starts[:-1]].any()


def _for_device(graphs: Mapping[str, Graph], first: Backend) -> Mapping[str, Graph]:
    """Return the graphs for the first backend: GPUs pick tokens by themselves."""
    return apart_from_stream(graphs) if first.offload else graphs


def _media_of(graph: str, forms: Collection[bool]) -> set[str]:
    """Return the names of the graphs for steps with media in place of a graph."""
    return {MEDIA_GRAPHS[graph, together] for together in forms if (graph, together) in MEDIA_GRAPHS}


def compiled_graph(stack: ExitStack, graph: Graph, backends: Backends, limits: Limits, config: Config) -> Runner:
    """Return the runner of a single graph, compiled; ``stack`` closes it. Raises BackendError."""
    runner = Runner(AdaptedGraphs({MAIN: graph}), backends, limits, PlacementRules(config.n_gpu_layers))
    stack.callback(runner.close)
    runner.compile()
    return runner
