"""Pipeline stages: consecutive layers of a model, compiled with their caches by a process per stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pumice.backend.step import Batch, Limits, Step
from pumice.config import Config, load_config
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.placed import PlacedGraph
from pumice.engine.placement.placement import PlacementRules, layer_bytes, layers_that_fit, place_layers, share_layers
from pumice.engine.placement.programs import summed
from pumice.engine.placement.sizing import make_limits
from pumice.errors import BackendError
from pumice.graph import Graph, Node, RecurrentState, Segment, State, Target, Weight, place
from pumice.hub import Located, locate
from pumice.model_files.opening import open_configured
from pumice.model_graphs import chosen_sizes, make_architecture, trace_adapted
from pumice.registry import get_registry
from pumice.tracing import prompts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Hop:
    """A part of a graph: the stage that computes it, and the names of its inputs and outputs."""

    stage: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Routes = Mapping[str, Sequence[Hop]]
"""The hops of each graph of a model, by the graph's ``fingerprint``."""


@dataclass(frozen=True)
class Compiled:
    """The compiled parts of a graph in a stage: bytes by purpose, and properties of recurrent states."""

    memory: Mapping[str, int]
    recurrent: bool
    copies_slots: bool


def memory_of(parts: Iterable[Compiled]) -> dict[str, int]:
    """Return the bytes of all parts by purpose."""
    return summed(part.memory for part in parts)


def fingerprint(nodes: Sequence[Node]) -> str:
    """Return a fingerprint that is equal for equal computations, in every process."""
    parts = [f"{part.op} {part.output}" for node in nodes for part in node.parts()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Stage:
    """The layers of a model that this process computes. It opens the file, and reads only the weights of its layers.

    Args:
        path: path or name of the model on this machine.
        arguments: arguments of ``pumice.load``.
        limits: limits of the engine, which include the maximum context.

    Raises like ``pumice.load``.
    """

    def __init__(self, path: str, arguments: Mapping[str, Any], limits: Limits) -> None:
        located = locate(path)
        self._config = _config(arguments, located)
        self._limits = limits
        self._placed: dict[tuple[str, int], PlacedGraph] = {}
        registry = get_registry(self._config)
        with ExitStack() as stack:
            file = stack.enter_context(open_configured(located.path, registry, self._config))
            architecture = make_architecture(file, registry)
            graphs = trace_adapted(stack, file, architecture, limits.n_ctx, self._config, registry)
            self._graphs = [*graphs.values(), *prompts_of(graphs).values()]
            self._backends = open_backends(stack, registry, self._config)
            self._stack = stack.pop_all()

    @property
    def free_memory(self) -> int | None:
        """Return the bytes of GPU memory for weights and states; None if unlimited or unknown."""
        free = [bytes for _, backend in self._backends if backend.offload for bytes in backend.free_memory()]
        sizes = [bytes for bytes in free if bytes is not None]
        return sum(sizes) if sizes and len(sizes) == len(free) else None

    def share(self, memory: Sequence[int | None]) -> dict[int, int]:
        """Return the stage of each layer for the stages' memory. Raises BackendError if it is too small."""
        sizes = _layer_sizes(self._graphs, lambda held: self._backends[0][1].footprint(held, self._limits))
        if layers_that_fit(sizes, memory) < len(sizes):
            has, needed = sum(bytes or 0 for bytes in memory) / 2**30, sum(sizes.values()) / 2**30
            raise BackendError(
                f"{len(memory)} stages have {has:.1f} GiB, but the model takes {needed:.1f} GiB; add stages"
            )
        return share_layers(sizes, memory)

    def take(self, number: int, stage_of: Mapping[int, int]) -> Routes:
        """Place the layers of stage ``number``, and return the routes over all stages."""
        homes: dict[State, Target] = {}
        cuts = [place(graph, lambda layer: [_target(stage_of[layer])], homes) for graph in self._graphs]
        names = [fingerprint(graph.nodes) for graph in self._graphs]
        mine = {
            (name, hop): _graph_of(graph, segment)
            for name, graph, segments in zip(names, self._graphs, cuts, strict=True)
            for hop, segment in enumerate(segments)
            if segment.device == number
        }
        if not mine:
            raise BackendError(f"stage {number + 1} has no layers; use fewer stages")
        placed = place_layers(list(mine.values()), self._backends, self._limits, PlacementRules.of(self._config))
        self._parts = {key: (graph, parts) for (key, graph), parts in zip(mine.items(), placed, strict=True)}
        return {
            name: [Hop(segment.device, _names(segment.inputs), _names(segment.outputs)) for segment in segments]
            for name, segments in zip(names, cuts, strict=True)
        }

    def compile(self, name: str, limits: Limits) -> Compiled:
        """Compile this stage's parts of a graph. Raises BackendError."""
        parts = []
        for key in [key for key in self._parts if key[0] == name]:
            graph, segments = self._parts[key]
            self._placed[key] = PlacedGraph(graph, segments, dict(self._backends), limits)
            self._placed[key].compile()
            parts.append(self._placed[key])
        stateful = [item for item in parts if any(isinstance(state, RecurrentState) for state in item.graph.states)]
        memory = summed(part.program.memory for part in parts if part.program)
        return Compiled(memory, bool(stateful), all(item.keeps_states for item in stateful))

    def run(self, name: str, hop: int, batch: Batch, arrays: Sequence[Array]) -> list[Array]:
        """Compute a part for one batch. The results are valid until the next call."""
        graph, _ = self._parts[name, hop]
        steps = self._placed[name, hop].steps
        assert steps is not None
        results = steps.submit(Step(batch, dict(zip(graph.inputs, arrays, strict=True)))).outputs()
        return [results[output] for output in graph.outputs]

    def copy_slots(self, name: str, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states, like ``Program.copy_slots``."""
        for (of, _), placed in self._placed.items():
            if of == name and placed.keeps_states and placed.steps:
                placed.steps.call(placed.steps.program.copy_slots, pairs)

    @property
    def backends(self) -> list[str]:
        """Return the names of the backends in use."""
        used = [segment.backend for _, segments in self._parts.values() for segment in segments]
        return list(dict.fromkeys(used))

    def close(self) -> None:
        for placed in self._placed.values():
            placed.close()
        self._stack.close()


def stages_needed(path: str, arguments: Mapping[str, Any], n_bytes: int) -> int:
    """Return the number of stages for a model, with ``n_bytes`` for weights and states per stage.

    Raises BackendError if a single layer needs more, and otherwise like ``pumice.load``.
    """
    located = locate(path)
    config = _config(arguments, located)
    registry = get_registry(config)
    with ExitStack() as stack:
        file = stack.enter_context(open_configured(located.path, registry, config))
        architecture = make_architecture(file, registry)
        chosen = chosen_sizes(config, file, architecture)
        graphs = trace_adapted(stack, file, architecture, chosen.n_ctx, config, registry)
        limits = make_limits(graphs, chosen)
        sizes = _layer_sizes(
            list(graphs.values()), lambda held: limits.state_bytes(held) if isinstance(held, State) else held.nbytes
        )
    for count in range(1, len(sizes) + 1):
        if layers_that_fit(sizes, [n_bytes] * count) == len(sizes):
            return count
    largest = max(sizes.values()) / 2**30
    raise BackendError(f"{path}: a layer takes up to {largest:.2f} GiB, but a stage has {n_bytes / 2**30:.2f} GiB")


def _config(arguments: Mapping[str, Any], located: Located) -> Config:
    options = {name: value for name, value in arguments.items() if name != "config" and value is not None}
    return load_config({**arguments.get("config", {}), **options}, located.options)


def _layer_sizes(graphs: Sequence[Graph], footprint: Callable[[Weight | State], int]) -> dict[int, int]:
    """Return the bytes of each layer, and of the nodes after the last layer."""
    nodes = [node for graph in graphs for node in graph.nodes]
    n_layers = max(graph.n_layer for graph in graphs) + 1
    return dict.fromkeys(range(n_layers), 0) | layer_bytes(nodes, footprint, True)


def _target(stage: int) -> Target:
    return Target("stage", lambda node: True, stage)


def _graph_of(graph: Graph, segment: Segment) -> Graph:
    """Return a segment as a separate graph, whose inputs come from other segments or a step."""
    inputs: dict[str, Any] = {tensor.name: tensor for tensor in segment.inputs}
    outputs = {tensor.name: tensor for tensor in segment.outputs}
    return replace(graph, nodes=segment.nodes, inputs=inputs, outputs=outputs)


def _names(tensors: Sequence[Any]) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors)
