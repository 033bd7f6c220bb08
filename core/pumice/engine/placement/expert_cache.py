"""Copies on a GPU of the experts in host memory that tokens choose most, as counted while the model runs.

A mixture whose experts stay in host memory is computed in two parts, which are added: a GPU multiplies by the experts
that it has copies of, in *slots*, and the host by the others. Which experts have copies changes between steps.
"""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Backend, Program
from pumice.backend.step import Limits, Step
from pumice.engine.placement.overrides import EXPERTS, HOST, moved_nodes
from pumice.engine.placement.placement import Backends, PlacementRules, find_placement
from pumice.errors import ConfigError
from pumice.gguf import GGMLType, dequantize, row_bytes
from pumice.graph import ELEMENTWISE, OPERATIONS, Graph, GraphBuilder, Input, Node, Segment, Tensor, Weight
from pumice.wording import format_bytes

logger = logging.getLogger("pumice")

PREFIX = "expert_cache."
"""Beginning of the names of the weights that hold copies."""

OF_HOST = ("renumber", "keep_chosen", "mul_mat_some")
"""Operations that GPUs leave to the host, which chooses between experts with and without copies."""

_MOST_BYTES = 64 * 2**20  # copied between two steps
_LEAST_TOKENS = 16  # counted before copies are replaced
_HALF_LIFE = 2048  # tokens after which a choice counts half
_MARGIN = 1.5  # an expert replaces another that was chosen less often by this factor
MATRIX_VALUES = 256  # a matrix has a multiple of them, for ``Program.renew_weight``
_NAMES = re.compile(EXPERTS)
VIEWS = ("reshape", "slice")  # operations between products of experts, beside element-wise ones


class SlotSource:
    """The matrices in slots, then one of zeros, as a weight; ``experts`` are the numbers of those in the slots."""

    def __init__(self, stack: Weight, experts: NDArray[np.int32]) -> None:
        self._stack = stack
        self._experts = experts
        self.type: GGMLType = stack.type
        self.shape = (len(experts) + 1, *map(int, stack.shape[1:]))
        self.nbytes = int(np.prod(self.shape[:-1])) * row_bytes(self.type, self.shape[-1])

    @property
    def data(self) -> NDArray[np.uint8]:
        stacked = self._stack.data
        copies = np.zeros((len(self._experts) + 1, *stacked.shape[1:]), np.uint8)
        for slot, expert in enumerate(self._experts):
            copies[slot] = stacked[expert]
        return copies

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as float32."""
        return dequantize(self.data, self.type)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Keep the stack, whose own source is released by those who read it."""


class CachedMixture:
    """The experts of one layer: which have copies, and how often each was chosen.

    Attributes:
        experts: number of the expert in each slot.
        slots: slot of each expert; that of zeros for experts without a copy.
        on_host: each expert's own number; -1 for experts with a copy.
        chosen: how often each expert was chosen; old choices count less.
        copies: weights in host memory and those with copies of their matrices, by the names of the former.
    """

    def __init__(self, n_expert: int, n_slots: int) -> None:
        self.experts = np.arange(n_slots, dtype=np.int32)
        self.slots = np.full(n_expert, n_slots, np.int32)
        self.slots[:n_slots] = self.experts
        self.on_host = np.arange(n_expert, dtype=np.int32)
        self.on_host[:n_slots] = -1
        self.chosen = np.zeros(n_expert)
        self.copies: dict[str, tuple[Weight, Weight]] = {}

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert in all matrices."""
        return sum(weight.nbytes // int(weight.shape[0]) for weight, _ in self.stacks)

    @property
    def stacks(self) -> list[tuple[Weight, Weight]]:
        """The stacks of matrices among ``copies``."""
        return [pair for pair in self.copies.values() if len(pair[0].shape) == 3]

    def copy_of(self, weight: Weight) -> Weight:
        """Return the weight with the copies of ``weight``; one that is no stack of matrices is copied whole."""
        if weight.name not in self.copies:
            name = PREFIX + re.sub(r"\W|_exps", "_", weight.name)
            if len(weight.shape) == 3:
                source = SlotSource(weight, self.experts)
                copied = Weight(name, source.shape, builder=weight.builder, source=source)
            else:
                copied = replace(weight, name=name)
            self.copies[weight.name] = weight, copied
        return self.copies[weight.name][1]

    def wishes(self) -> Iterator[tuple[float, int, int]]:
        """Yield how much more often an expert was chosen than the one whose slot it should get, it, and the slot."""
        outside = np.flatnonzero(self.on_host >= 0)
        outside = outside[np.argsort(-self.chosen[outside], kind="stable")]
        slots = np.argsort(self.chosen[self.experts], kind="stable")
        for expert, slot in zip(outside.tolist(), slots.tolist(), strict=False):
            own, other = float(self.chosen[expert]), float(self.chosen[self.experts[slot]])
            if own <= _MARGIN * other + 1:
                return
            yield own - other, expert, slot

    def put(self, expert: int, slot: int, program_of: Callable[[Weight], Program]) -> None:
        """Replace the expert in a slot. ``program_of`` returns the program that holds copies."""
        before = int(self.experts[slot])
        self.slots[before], self.on_host[before] = len(self.experts), before
        self.experts[slot] = expert
        for weight, copies in self.stacks:
            program_of(copies).renew_weight(copies, slot, weight.rows(expert, expert + 1))
        self.slots[expert], self.on_host[expert] = slot, -1


@dataclass
class ExpertCache:
    """The mixtures of a model with copies on GPUs. ``mixtures``: by name of their first matrices.

    ``chosen_by``: the mixtures whose experts a value names.
    """

    mixtures: dict[str, CachedMixture] = field(default_factory=dict)
    chosen_by: dict[Tensor, CachedMixture] = field(default_factory=dict)
    n_chosen: int = 0
    n_found: int = 0
    _n_new: int = 0  # tokens since copies were replaced
    _first: CachedMixture | None = None  # counts each token once

    def watch(self, segment: Segment, program: Program) -> None:
        """Count the experts that tokens choose in a segment's steps."""
        named = {tensor.name: self.chosen_by[tensor] for tensor in segment.inputs if tensor in self.chosen_by}
        if not named:
            return
        run = program.run

        def run_counting(step: Step) -> Mapping[str, NDArray[Any]]:
            for name, mixture in named.items():
                self._count(mixture, step.inputs[name])
            return run(step)

        program.run = run_counting  # type: ignore[method-assign]

    def _count(self, mixture: CachedMixture, ids: NDArray[np.int32]) -> None:
        counts = np.bincount(ids.reshape(-1), minlength=len(mixture.chosen))[: len(mixture.chosen)]
        mixture.chosen += counts
        self.n_chosen += ids.size
        self.n_found += int(counts[mixture.on_host < 0].sum())
        self._first = self._first or mixture
        if mixture is self._first:
            self._n_new += len(ids)

    def wishes(self) -> list[tuple[CachedMixture, int, int]]:
        """Return mixtures, experts and slots that they should get before the next step."""
        if self._n_new < _LEAST_TOKENS:
            return []
        fading = 0.5 ** (self._n_new / _HALF_LIFE)
        self._n_new = 0
        candidates = [
            (gain, mixture, expert, slot)
            for mixture in self.mixtures.values()
            for gain, expert, slot in mixture.wishes()
        ]
        candidates.sort(key=lambda wish: -wish[0])
        n_bytes = 0
        wishes: list[tuple[CachedMixture, int, int]] = []
        for _, mixture, expert, slot in candidates:
            n_bytes += mixture.expert_bytes
            if wishes and n_bytes > _MOST_BYTES:
                break
            wishes.append((mixture, expert, slot))
        for mixture in self.mixtures.values():
            mixture.chosen *= fading
        return wishes

    def close(self) -> None:
        if self.n_chosen:
            share = self.n_found / self.n_chosen
            logger.info("moe_cache_mib: %.0f %% of the chosen experts were on the GPU", 100 * share)


def cache_experts(
    graphs: Mapping[str, Graph], backends: Backends, limits: Limits, rules: PlacementRules, n_bytes: int
) -> tuple[dict[str, Graph], ExpertCache | None]:
    """Return graphs that use copies of experts on GPUs, and the copies; a warning says why if there are none.

    Args:
        graphs: graphs of a model by name.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: where layers and experts lie.
        n_bytes: most bytes of copies.

    Raises:
        ConfigError: ``n_bytes`` has no room for an expert of each layer.
    """
    gpu = next((backend for _, backend in backends if backend.offload and backend.renews_weights), None)
    traced = list(graphs.values())
    mixtures = dict(zip(graphs, host_mixtures(traced, traced, backends, limits, rules), strict=True))
    by_name = {mixture.name: mixture for group in mixtures.values() for mixture in group}
    if gpu is None or not by_name:
        logger.warning("moe_cache_mib: no experts are cached: %s", _uncached(gpu, backends, n_bytes))
        return dict(graphs), None
    cache = _empty_cache(list(by_name.values()), gpu, limits, n_bytes)
    return {name: divide(graph, cache, mixtures[name]) for name, graph in graphs.items()}, cache


def _uncached(gpu: Backend | None, backends: Backends, n_bytes: int) -> str:
    """Return why no experts have copies on ``gpu``, the first GPU whose weights can be replaced."""
    if gpu is None:
        has_gpu = any(backend.offload for _, backend in backends)
        return "the backend of this GPU cannot replace single matrices" if has_gpu else "no GPU is in use"
    free = gpu.free_memory()
    room = sum(n_free for n_free in free if n_free is not None)
    if None not in free and room <= n_bytes:
        return f"{format_bytes(n_bytes)} leave no room for layers: the GPU has {format_bytes(room)} free; give less"
    return "no experts of a layer on a GPU stay in host memory"


def host_mixtures(
    graphs: Sequence[Graph], all_graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules
) -> list[list[Mixture]]:
    """Return the mixtures of each of ``graphs`` whose experts stay in host memory while their layers are on a GPU.

    Args:
        graphs: graphs among ``all_graphs``.
        all_graphs: graphs of a model.
        backends: backends in order.
        limits: largest step, and size of the caches.
        rules: where layers and experts lie.
    """
    moved = moved_nodes(all_graphs, rules.overrides, rules.kv_offload, limits.sizes)
    if HOST not in moved.values():
        return [[] for _ in graphs]
    first = find_placement(all_graphs, backends, limits, rules).first_offloaded

    def is_on_host(node: Node) -> bool:
        return moved.get(node) == HOST and node.layer >= first

    return [mixtures_of(graph, is_on_host) for graph in graphs]


def _empty_cache(mixtures: Sequence[Mixture], gpu: Backend, limits: Limits, n_bytes: int) -> ExpertCache:
    """Return a cache with as many slots for each mixture as ``n_bytes`` have room for."""

    def size(n_slots: int) -> int:
        stacks = [stack for mixture in mixtures for stack in mixture.stacks]
        return sum(gpu.footprint(replace(stack, shape=(n_slots + 1, *stack.shape[1:])), limits) for stack in stacks)

    most = max(mixture.n_expert for mixture in mixtures)
    n_slots = bisect_right(range(1, most + 1), n_bytes, key=size)
    if not n_slots:
        needed = -(-size(1) // 2**20)
        raise ConfigError(
            f"moe_cache_mib: {n_bytes // 2**20} MiB have no room for an expert of each of {len(mixtures)} layers; "
            f"give at least {needed}, or 0 for none"
        )
    return ExpertCache({m.name: CachedMixture(m.n_expert, min(n_slots, m.n_expert)) for m in mixtures})


@dataclass(eq=False)
class Mixture:
    """Nodes between the choice of experts, ``ids``, and ``end``, the sum of their results."""

    ids: Tensor
    nodes: list[Node]
    end: Node

    @property
    def name(self) -> str:
        """Name of the first matrices."""
        return self.stacks[0].name

    @property
    def n_expert(self) -> int:
        return int(self.stacks[0].shape[0])

    @property
    def stacks(self) -> list[Weight]:
        """The matrices of all experts, product by product."""
        return [node.weight("weight") for node in self.nodes if node.op == "mul_mat_id"]


def mixtures_of(graph: Graph, is_on_host: Callable[[Node], bool]) -> list[Mixture]:
    """Return the mixtures of a graph whose products of experts are all on the host, and can be divided."""
    products: dict[Tensor, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "mul_mat_id" and is_on_host(node):
            products.setdefault(node.inputs["ids"], []).append(node)
    mixtures = (_mixture(graph, ids, nodes) for ids, nodes in products.items())
    return [mixture for mixture in mixtures if mixture is not None]


def _mixture(graph: Graph, ids: Tensor, products: Sequence[Node]) -> Mixture | None:
    made: set[Tensor] = set()
    nodes, ends = [], []
    for node in graph.nodes:
        is_table = node.op == "embedding" and node.inputs["ids"] is ids and _is_expert(node.weight("weight"))
        if node in products or is_table:
            nodes.append(node)
        elif not made.isdisjoint(node.operands()):
            if node.op == "expert_sum" and node.inputs["weights"] not in made:
                ends.append(node)
                continue
            if node.op not in ELEMENTWISE and node.op not in VIEWS:
                return None
            nodes.append(node)
        else:
            continue
        made.add(node.output)
    are_whole = all(math.prod(map(int, node.weight("weight").shape[1:])) % MATRIX_VALUES == 0 for node in products)
    if not are_whole or len(ends) != 1 or not made.isdisjoint(graph.outputs.values()):
        return None
    return Mixture(ids, nodes, ends[0])


def _is_expert(weight: Weight) -> bool:
    return _NAMES.search(weight.name) is not None


def divide(graph: Graph, cache: ExpertCache, mixtures: Sequence[Mixture]) -> Graph:
    """Return the graph with each mixture in two parts, one of which uses the copies of ``cache``."""
    parts = {mixture.end: _two_parts(cache, mixture) for mixture in mixtures}
    replaced = {node for mixture in mixtures for node in mixture.nodes}
    kept = [node for node in graph.nodes if node not in replaced]
    nodes = [new for node in kept for new in (parts[node].nodes if node in parts else [node])]
    tables = {tensor.name: tensor for part in parts.values() for tensor in part.tables}
    return replace(graph, nodes=nodes, inputs={**graph.inputs, **tables})


class _Parts(NamedTuple):
    nodes: list[Node]
    tables: list[Input]


def _two_parts(cache: ExpertCache, mixture: Mixture) -> _Parts:
    g = mixture.end.output.builder
    assert isinstance(g, GraphBuilder)
    cached = cache.mixtures[mixture.name]
    cache.chosen_by[mixture.ids] = cached
    trace, weights = tracer(g), mixture.end.inputs["weights"]
    with g.collecting() as nodes, g.layer(mixture.end.layer):
        slots = g.table(f"{mixture.name} slots", lambda: cached.slots)
        on_host = g.table(f"{mixture.name} on host", lambda: cached.on_host)
        in_slots = trace("renumber", ids=mixture.ids, table=slots)
        chosen = trace("renumber", ids=mixture.ids, table=on_host)
        weighed = trace("keep_chosen", weights=weights, ids=chosen)
        y = retrace(trace, mixture, "mul_mat_some", chosen, lambda weight: weight)
        of_host = trace("expert_sum", y=y, weights=weighed)
        rest = trace("add", x=weights, y=weighed * -1.0)
        y = retrace(trace, mixture, "mul_mat_id", in_slots, cached.copy_of)
        trace("add", x=of_host, y=trace("expert_sum", y=y, weights=rest))
    return _Parts([*nodes[:-1], nodes[-1].giving(mixture.end.output)], [slots, on_host])


def tracer(g: GraphBuilder) -> Callable[..., Tensor]:
    """Return a function that adds a node as it is: an adapter's part of a product is a node already."""
    return lambda op, **operands: GraphBuilder.trace(g, OPERATIONS[op], **operands)


def retrace(
    trace: Callable[..., Tensor], mixture: Mixture, product: str, ids: Tensor, copy_of: Callable[[Weight], Weight]
) -> Tensor:
    """Trace the nodes of a mixture once more and return its results before their sum.

    Args:
        trace: adds a node.
        mixture: what is traced.
        product: operation of the products.
        ids: ids of their matrices.
        copy_of: returns the weight to use instead of one of experts.
    """
    made: dict[Tensor, Tensor] = {}
    for node in mixture.nodes:
        operands = {name: made.get(tensor, tensor) for name, tensor in node.inputs.items()}
        operands |= {
            name: copy_of(tensor)
            for name, tensor in operands.items()
            if isinstance(tensor, Weight) and _is_expert(tensor)
        }
        op = node.op
        if op == "mul_mat_id":
            op, operands["ids"] = product, ids
        made[node.output] = trace(op, **operands, **node.attrs)
    return made[mixture.end.inputs["y"]]
