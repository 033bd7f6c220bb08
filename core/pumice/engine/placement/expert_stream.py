"""Prompts through a GPU with weights in host memory: their matrices are copied to it, layer by layer.

Sets of matrices on the GPU take turns: while it computes a layer with one, the next layer's fill another. Steps of few
tokens need few experts each and stay with the processor. ``matrix_stream`` does the same for dense layers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Program
from pumice.backend.step import Limits, Step
from pumice.engine.placement.expert_cache import Mixture, host_mixtures, retrace, tracer
from pumice.engine.placement.overrides import Override
from pumice.engine.placement.placement import Backends, PlacementRules
from pumice.errors import BackendError
from pumice.gguf import GGMLType
from pumice.graph import Graph, GraphBuilder, Input, Node, Segment, Tensor, Weight

logger = logging.getLogger("pumice")

PREFIX = "expert_stream."
"""Beginning of the names of the weights that layers share."""

LEAST_TOKENS = 32
"""Tokens of a step from which on weights are copied, where no rates say when that is faster."""

N_SETS = 2
Shared = dict[tuple[object, ...], Weight]  # shared matrices by set, place in their layer, type and shape
_MOST_CHOSEN = 0.75  # share of a layer's experts from which on all experts of the next layer are copied ahead


class SharedSource:
    """The matrices of the layer whose turn it is, as a weight."""

    def __init__(self, stack: Weight) -> None:
        self.stack = stack
        self.type: GGMLType = stack.type
        self.shape = tuple(map(int, stack.shape))
        self.nbytes = stack.nbytes

    @property
    def data(self) -> NDArray[np.uint8]:
        return self.stack.data

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as float32."""
        return self.stack.dequantize()

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Keep the stack, whose own source is released by those who read it."""


@dataclass(eq=False)
class StreamedMixture:
    """The experts of a layer in host memory, and the shared matrices that they are copied to.

    Attributes:
        ids: the experts that tokens choose.
        product: a node that multiplies by shared matrices.
        copies: stacks in host memory, and shared ones.
        program: the program of the shared ones, once compiled.
        is_dense: the weights are matrices that all tokens use, copied as a whole; ``ids`` has no meaning.
    """

    ids: Tensor
    product: Node
    copies: list[tuple[Weight, Weight]]
    program: Program | None = None
    is_dense: bool = False

    @property
    def n_expert(self) -> int:
        return 1 if self.is_dense else int(self.copies[0][0].shape[0])

    @property
    def n_bytes(self) -> int:
        """Bytes of all experts."""
        return sum(stack.nbytes for stack, _ in self.copies)

    def copy(self, experts: NDArray[np.signedinteger[Any]]) -> None:
        """Copy ascending ``experts`` to the shared matrices, consecutive ones at once."""
        assert self.program is not None, "compile comes first"
        runs = np.split(experts, np.flatnonzero(np.diff(experts) > 1) + 1)
        changes = []
        for stack, shared in self.copies:
            assert isinstance(shared.source, SharedSource)
            shared.source.stack = stack
            parts = [(int(run[0]), stack.rows(int(run[0]), int(run[-1]) + 1)) for run in runs if not self.is_dense]
            changes += [(shared, first, rows) for first, rows in parts or [(0, stack)]]
        self.program.renew_weights(changes)


@dataclass
class ExpertStream:
    """The graph of steps with many tokens.

    Attributes:
        graph: the main graph, in which the GPU multiplies by shared matrices.
        mixtures: the layers whose experts are copied, in order.
        least: tokens of a step from which on this graph computes it.
        n_sets: sets of shared matrices, which consecutive mixtures use in turn.
        overrides: places of shared matrices whose layers are not on a GPU.
        keeps_ready: copies of all weights lie in host memory that the GPU reads, if backends have such memory.
    """

    graph: Graph
    mixtures: list[StreamedMixture]
    least: int = LEAST_TOKENS
    n_sets: int = N_SETS
    overrides: tuple[Override, ...] = ()
    keeps_ready: bool = False
    _fetched: dict[int, Future[None]] = field(default_factory=dict)  # by number of the mixture
    _fetching: ThreadPoolExecutor | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the shared matrices."""
        return sum({shared.name: shared.nbytes for mixture in self.mixtures for _, shared in mixture.copies}.values())

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of the experts of each layer."""
        return [mixture.n_bytes for mixture in self.mixtures]

    @property
    def ready_bytes(self) -> int:
        """Bytes of the copies that are kept ready."""
        return sum(self.layer_bytes) if self.keeps_ready else 0

    def attach(self, placed: Sequence[Segment], programs: Sequence[Program]) -> None:
        """Copy matrices between the programs of ``placed`` segments. Raises BackendError if a layer is not on a GPU."""
        pairs = list(zip(placed, programs, strict=True))
        for number, mixture in enumerate(self.mixtures):
            holders = (program for segment, program in pairs if mixture.product in segment.nodes)
            choosers = (program for segment, program in pairs if mixture.ids in segment.inputs)
            holder, chooser = next(holders, None), next(choosers, None)
            if holder is None or chooser is None:
                layer = mixture.product.layer
                raise BackendError(
                    f"op_offload: layer {layer} is not on a GPU, so that its experts cannot be copied there; load the "
                    "model with op_offload=off (--no-op-offload)"
                )
            mixture.program = holder
            self._watch(number, chooser)
        self._keep_ready()
        self._fetching = ThreadPoolExecutor(1, "pumice-experts")

    def _keep_ready(self) -> None:
        try:
            for mixture in self.mixtures if self.keeps_ready else ():
                assert mixture.program is not None
                for stack, _ in mixture.copies:
                    mixture.program.keep_ready(stack)
        except BackendError as error:
            logger.info("op_offload: some weights are copied from pageable memory: %s", error)

    def _watch(self, number: int, program: Program) -> None:
        """Copy the matrices of a mixture when ``program``, which gets the chosen experts, runs."""
        run, name = program.run, self.mixtures[number].ids.name

        def run_copying(step: Step) -> Mapping[str, NDArray[Any]]:
            self._bring(number, step.inputs[name])
            return run(step)

        program.run = run_copying  # type: ignore[method-assign]

    def _bring(self, number: int, ids: NDArray[np.int32]) -> None:
        """Copy the matrices that ``ids`` name, unless they were copied ahead; begin with those of the next mixtures."""
        assert self._fetching is not None
        mixture, ahead = self.mixtures[number], self._fetched.pop(number, None)
        following = range(number + 1, min(number + self.n_sets, len(self.mixtures)))
        for other in set(self._fetched) - set(following):  # of a step that failed
            self._fetched.pop(other).exception()
        chosen = np.unique(ids)
        if ahead is None:
            mixture.copy(chosen)
        else:
            ahead.result()
        for other in following if len(chosen) >= _MOST_CHOSEN * mixture.n_expert else ():
            if other not in self._fetched:
                experts = np.arange(self.mixtures[other].n_expert)
                self._fetched[other] = self._fetching.submit(self.mixtures[other].copy, experts)

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.shutdown()


def stream_experts(
    graph: Graph, graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules, first: int = 0
) -> ExpertStream | None:
    """Return the stream of a graph whose experts stay in host memory while their layers are on a GPU; None if none do.

    Args:
        graph: main graph of a model.
        graphs: all graphs of the model.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: where layers and experts lie.
        first: the first layer whose experts are copied.
    """
    gpu = next((backend for _, backend in backends if backend.offload and backend.renews_weights), None)
    mixtures = host_mixtures([graph], graphs, backends, limits, rules)[0] if gpu else []
    mixtures = [mixture for mixture in mixtures if mixture.end.layer >= first]
    if not mixtures:
        return None
    shared: Shared = {}
    parts = {mixture.end: _streamed(mixture, number % N_SETS, shared) for number, mixture in enumerate(mixtures)}
    replaced = {node for mixture in mixtures for node in mixture.nodes}
    kept = [node for node in graph.nodes if node not in replaced]
    nodes = [new for node in kept for new in (parts[node].nodes if node in parts else [node])]
    tables = {part.table.name: part.table for part in parts.values()}
    streamed = replace(graph, nodes=nodes, inputs={**graph.inputs, **tables})
    return ExpertStream(streamed, [part.mixture for part in parts.values()])


@dataclass(frozen=True)
class _Part:
    nodes: list[Node]
    table: Input
    mixture: StreamedMixture


def shared_copy(weight: Weight, number: int, copies: list[tuple[Weight, Weight]], shared: Shared) -> Weight:
    """Return the shared matrices of a set that ``weight`` is copied to, and add the pair to ``copies``."""
    key = number, len(copies), weight.type, weight.shape
    if key not in shared:
        source = SharedSource(weight)
        name = f"{PREFIX}{len(shared)}.{number}"
        shared[key] = Weight(name, source.shape, builder=weight.builder, source=source)
    copies.append((weight, shared[key]))
    return shared[key]


def _streamed(mixture: Mixture, number: int, shared: Shared) -> _Part:
    """Return the nodes that compute a mixture with the shared matrices of a set."""
    g = mixture.end.output.builder
    assert isinstance(g, GraphBuilder)
    trace = tracer(g)
    copies: list[tuple[Weight, Weight]] = []

    def copy_of(weight: Weight) -> Weight:
        if len(weight.shape) < 3:  # a bias or scale of each expert
            return replace(weight, name=f"{PREFIX}{weight.name.replace('_exps', '')}")
        return shared_copy(weight, number, copies, shared)

    numbers = np.arange(mixture.n_expert, dtype=np.int32)
    with g.collecting() as nodes, g.layer(mixture.end.layer):
        table = g.table(f"{mixture.name} numbers", lambda: numbers)
        ids = trace("renumber", ids=mixture.ids, table=table)
        y = retrace(trace, mixture, "mul_mat_id", ids, copy_of)
        trace("expert_sum", y=y, weights=mixture.end.inputs["weights"])
    product = next(node for node in nodes if node.op == "mul_mat_id")
    return _Part(
        [*nodes[:-1], nodes[-1].giving(mixture.end.output)], table, StreamedMixture(mixture.ids, product, copies)
    )
