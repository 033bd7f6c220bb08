"""A model ready to compute: its graphs placed and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import DRAFT, ENCODER, MAIN
from pumice.backend import Backend, Capabilities, KernelTime, Program
from pumice.engine.placed import PlacedGraph
from pumice.engine.placement import place_layers
from pumice.engine.sizing import states_of_all
from pumice.engine.tracing import EMBED, prompts_of
from pumice.graph import Graph, RecurrentState, row_size
from pumice.pick import Ask
from pumice.step import Batch, Limits, Pending


class Observer(Protocol):
    """Sees values inside the steps of a model."""

    def watch(self, graph: Graph) -> Graph:
        """The graph with more outputs."""

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Look at a step's outputs, by name. They are valid until it returns."""


class _Watched(Pending):
    """A step whose outputs are shown to somebody first."""

    def __init__(self, pending: Pending, show: Callable[[Mapping[str, NDArray[Any]]], None]) -> None:
        self._pending = pending
        self._show = show

    def outputs(self) -> Mapping[str, NDArray[Any]]:
        outputs = self._pending.outputs()
        self._show(outputs)
        return outputs


def _limits_of(graph: Graph, limits: Limits) -> Limits:
    """Rows of logits are few, those of hidden states as many as there are tokens."""
    return limits if "logits" in graph.outputs else replace(limits, n_outputs=limits.n_batch)


class Runner:
    """Runs one model's batches.

    ``backends`` are in line: each node goes to the first that claims it. Steps in which every sequence begins run the
    prompts' expansion of a graph, where it has one. ``observe`` is called with the outputs of each step of the main
    graph, which then is the same for all steps.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        backends: Sequence[tuple[str, Backend]],
        limits: Limits,
        n_gpu_layers: int = -1,
        progress: Callable[[int, int], None] | None = None,
        observe: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
    ) -> None:
        self.limits = limits
        self.recurrent = any(isinstance(state, RecurrentState) for state in states_of_all(graphs))
        self._backends = backends
        self._progress = progress
        self._observe = observe
        prompts = {} if observe else prompts_of(graphs)
        traced = [*graphs.values(), *prompts.values()]
        placed = place_layers(traced, backends, limits, n_gpu_layers)
        made = [
            PlacedGraph(*each, dict(backends), _limits_of(each[0], limits)) for each in zip(traced, placed, strict=True)
        ]
        self._graphs = dict(zip(graphs, made, strict=False))
        self._prompts = dict(zip(prompts, made[len(graphs) :], strict=True))
        self._last = self._main

    def compile(self) -> None:
        """Hand every segment to its backend. Raises BackendError, for example when memory runs out."""
        later = {EMBED, DRAFT}  # when they are first wanted
        first = [placed for name, placed in self._graphs.items() if name not in later]
        first += [placed for name, placed in self._prompts.items() if name not in later]
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

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Logits ``[n_outputs, n_vocab]``, valid until the next run."""
        return self.outputs(batch)["logits"]

    def outputs(self, batch: Batch, graph: str = MAIN) -> Mapping[str, NDArray[Any]]:
        """A graph's outputs by name, valid until the next run. Raises RequestError for a wrong or missing input."""
        return self.submit(batch, graph=graph).outputs()

    def submit(self, batch: Batch, ask: Ask | None = None, behind: Pending | None = None, graph: str = MAIN) -> Pending:
        """Begin a step of a graph. Raises RequestError for a wrong or missing input."""
        placed = (self._prompts if not ask and self._is_prompts(batch, graph) else self._graphs)[graph]
        if placed.program is None:
            placed.compile()
        in_turn = placed is not self._main and self.capabilities.n_in_flight == 1
        if in_turn:
            self._main.finish()
        self._last = placed
        pending = placed.submit(batch, ask, behind)
        if in_turn:
            return _Watched(pending, lambda outputs: placed.finish())  # the main graph's programs may run next
        return _Watched(pending, self._observe) if placed is self._main and self._observe else pending

    @property
    def capabilities(self) -> Capabilities:
        """What the main graph's program can do where there is nothing that cannot be taken back, or is observed."""
        if self._main.program is None or self._observe:
            return Capabilities()
        can = self._main.program.capabilities
        return can if self.keeps_states or not self.recurrent else replace(can, max_steps=0)

    def picks(self, batch: Batch) -> bool:
        """Whether the program can pick tokens behind such a batch."""
        return self.capabilities.max_steps > 0 and not self._is_prompts(batch, MAIN)

    def _is_prompts(self, batch: Batch, graph: str) -> bool:
        """Whether the expansion for prompts computes it: there is one, and every sequence begins."""
        return graph in self._prompts and not batch.positions[batch.seq_starts[:-1]].any()

    @property
    def lost(self) -> bool:
        """Whether the last ``run`` failed and took parts of earlier ones with it."""
        return self._last.lost

    @property
    def program(self) -> Program | None:
        """The program of the main graph; None until it is compiled."""
        return self._main.program

    @property
    def keeps_states(self) -> bool:
        """Whether it has recurrent states, which can be copied; known once it is compiled."""
        return self._main.keeps_states

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy the recurrent states of slots: for each pair from and to."""
        assert self._main.program is not None, "compile comes first"
        self._main.program.copy_slots(pairs)

    @property
    def n_vocab(self) -> int:
        """Entries of a row of logits; of a model without them, rows of the table of tokens."""
        main = self._main.graph
        if "logits" in main.outputs:
            return int(main.outputs["logits"].shape[-1])
        tables = [node for node in main.nodes if node.op == "embedding" and node.inputs["ids"].name == "tokens"]
        return int(tables[0].weight("weight").shape[0]) if tables else 0

    @property
    def generates(self) -> bool:
        """Whether it gives logits of sequences that grow, of tokens alone."""
        main = self._main.graph
        return "logits" in main.outputs and "hidden" not in main.inputs and not self.needs_whole_sequences

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether the main graph wants a sequence all in one step."""
        return self.wants_whole(MAIN)

    def wants_whole(self, graph: str) -> bool:
        """Whether a graph wants a sequence all in one step."""
        return self._graphs[graph].graph.needs_whole_sequences

    @property
    def encodes(self) -> bool:
        """Whether an encoder reads the prompt, and the main graph attends to what it keeps of it."""
        return ENCODER in self._graphs

    @property
    def embedder(self) -> str | None:
        """The name of the graph that gives hidden states, ``hidden [n_outputs, n_embd]``; None: there is none."""
        return next(
            (name for name in (ENCODER, EMBED, MAIN) if name in self._graphs and "hidden" in self.results(name)), None
        )

    def results(self, graph: str) -> dict[str, int]:
        """The outputs of a graph by name, and the values in a row of each; none of a graph that is not there."""
        placed = self._graphs.get(graph)
        return {name: row_size(tensor.shape) for name, tensor in placed.graph.outputs.items()} if placed else {}

    @property
    def segments(self) -> list[Any]:
        """Those of the main graph."""
        return self._main.segments

    @property
    def backends_used(self) -> list[str]:
        """Names of the backends that have a segment, the one with most nodes first."""
        nodes: dict[str, int] = {}
        for segment in self.segments:
            nodes[segment.backend] = nodes.get(segment.backend, 0) + len(segment.nodes)
        return sorted(nodes, key=lambda name: -nodes[name])

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held, by purpose, over all backends."""
        total: dict[str, int] = {}
        for program in (placed.program for placed in self._all if placed.program):
            for purpose, n_bytes in program.memory.items():
                total[purpose] = total.get(purpose, 0) + n_bytes
        return total

    def profile(self) -> list[KernelTime]:
        """Times of the kernels of the last step, by name, the longest first."""
        times: dict[str, list[float]] = {}
        for kernel in self._last.program.profile() if self._last.program else []:
            count, total = times.get(kernel.name, (0, 0.0))
            times[kernel.name] = [count + kernel.count, total + kernel.microseconds]
        kernels = [KernelTime(name, int(count), total) for name, (count, total) in times.items()]
        return sorted(kernels, key=lambda kernel: -kernel.microseconds)

    def describe(self) -> str:
        """The placed graphs as text."""
        named = [(f"graph {name}", placed) for name, placed in self._graphs.items() if name != EMBED]
        if len(named) + len(self._prompts) == 1:
            return self._main.describe()
        named += [(f"graph {name}, of prompts", placed) for name, placed in self._prompts.items()]
        return "\n".join(f"{title}\n{placed.describe()}" for title, placed in named)

    def close(self) -> None:
        """Close the programs. The backends belong to who made them."""
        for placed in self._all:
            placed.close()

    @property
    def _main(self) -> PlacedGraph:
        return self._graphs[MAIN]

    @property
    def _all(self) -> list[PlacedGraph]:
        return [*self._graphs.values(), *self._prompts.values()]
