"""The graphs of a model on devices: compiled together, and what they hold there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pumice.architecture import DRAFT, FEATURES, MAIN
from pumice.backend import Backend, Program
from pumice.backend.step import Limits
from pumice.engine.placement.held import Held, held_by
from pumice.engine.placement.placed import PlacedGraph
from pumice.engine.placement.placement import PlacementRules, place_layers, uses_of
from pumice.graph import Graph, Segment
from pumice.tracing import EMBED, MEDIA_GRAPHS, SPEAK, prompts_of

_MEDIA = frozenset(MEDIA_GRAPHS.values())
LATER = _MEDIA | {EMBED, SPEAK, DRAFT, FEATURES}
"""Graphs that are compiled on first use, not when a model is loaded."""


class PlacedModel:
    """A model's graphs, each node of which goes to the first backend that supports it.

    Args:
        graphs: graphs by name; that of steps in general is ``MAIN``.
        backends: backends in order of preference.
        limits: largest step, and size of the caches.
        rules: wishes of the user.
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
        rules: PlacementRules,
        has_prompts: bool,
    ) -> None:
        prompts = prompts_of(graphs) if has_prompts else {}
        traced = [*graphs.values(), *prompts.values()]
        placed = [
            PlacedGraph(graph, segments, dict(backends), _limits_of(graph, limits))
            for graph, segments in zip(traced, place_layers(traced, backends, limits, rules), strict=True)
        ]
        self.backends = backends
        self.graphs = dict(zip(graphs, placed, strict=False))
        self.prompts = dict(zip(prompts, placed[len(graphs) :], strict=True))
        self._limits = limits

    @property
    def main(self) -> PlacedGraph:
        """The graph that generates."""
        return self.graphs[MAIN]

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
        for _, placed in self._named:
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
        nodes: dict[str, int] = {}
        for segment in self.main.segments:
            nodes[segment.backend] = nodes.get(segment.backend, 0) + len(segment.nodes)
        return sorted(nodes, key=lambda name: -nodes[name])

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose, over all backends."""
        total: dict[str, int] = {}
        for program in self._programs:
            for purpose, n_bytes in program.memory.items():
                total[purpose] = total.get(purpose, 0) + n_bytes
        return total

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
        others = {EMBED, SPEAK, *_MEDIA}
        named = [(f"graph {name}", placed) for name, placed in self.graphs.items() if name not in others]
        if len(named) + len(self.prompts) == 1:
            return self.main.describe()
        named += [(f"graph {name}, of prompts", placed) for name, placed in self.prompts.items()]
        return "\n".join(f"{title}\n{placed.describe()}" for title, placed in named)

    @property
    def _named(self) -> list[tuple[str, PlacedGraph]]:
        return [*self.graphs.items(), *self.prompts.items()]

    @property
    def _programs(self) -> list[Program]:
        return [placed.program for _, placed in self._named if placed.program]


def _limits_of(graph: Graph, limits: Limits) -> Limits:
    """Return limits for a graph: logits have few rows, hidden states one per token."""
    return limits if "logits" in graph.outputs else replace(limits, n_outputs=limits.n_batch)
