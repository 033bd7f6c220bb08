"""Prompts through a GPU with dense layers in host memory: their matrices are copied to it, as in ``expert_stream``.

The host computes what is between the products, such as attention with a cache in host memory. Feed-forward matrices
may also stay in host memory alone (``n_cpu_ffn``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pumice.backend.step import Limits
from pumice.engine.placement.costs import EXPERT_PRODUCTS
from pumice.engine.placement.expert_cache import MATRIX_VALUES, VIEWS, tracer
from pumice.engine.placement.expert_stream import N_SETS, PREFIX, ExpertStream, Shared, StreamedMixture, shared_copy
from pumice.engine.placement.overrides import HOST, DeviceName, Override, moved_nodes
from pumice.engine.placement.placement import Backends, PlacementRules, find_placement
from pumice.graph import ELEMENTWISE, N_TOKENS, Graph, GraphBuilder, Input, Node, Weight


def stream_matrices(
    graph: Graph, graphs: Sequence[Graph], backends: Backends, limits: Limits, rules: PlacementRules
) -> ExpertStream | None:
    """Return the stream of a graph without experts, some of whose matrices stay in host memory; None if there is none.

    The arguments are those of ``stream_experts``.
    """
    gpu = next(((name, gpu) for name, gpu in backends if gpu.offload and gpu.renews_weights), None)
    if gpu is None or any(node.op in EXPERT_PRODUCTS for node in graph.nodes):
        return None
    moved = moved_nodes(graphs, rules.overrides, rules.kv_offload, limits.sizes)
    placement = find_placement(graphs, backends, limits, rules)
    if not placement.n_offloaded:
        return None

    def is_on_host(node: Node) -> bool:
        return moved.get(node) == HOST or (0 <= node.layer < placement.first_offloaded and node not in moved)

    blocks = _blocks(graph, lambda node: is_on_host(node) and gpu[1].supports(node, limits))
    n_sets = max([N_SETS, *(sum(block[0].layer == layer for block in blocks) for layer in range(graph.n_layer))])
    shared: Shared = {}
    streamed = {block[0]: _Block(block, number % n_sets, number, shared) for number, block in enumerate(blocks)}
    of_node = {node: block for block in streamed.values() for node in block.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += streamed[node].ticks if node in streamed else ()
        nodes.append(of_node[node].nodes[node] if node in of_node else _copied(node))
    if not blocks:
        return None
    inputs = {tensor.name: tensor for block in streamed.values() for tensor in block.inputs}
    pinned = Override(re.compile(f"^{re.escape(PREFIX)}"), DeviceName(gpu[0]))
    return ExpertStream(
        replace(graph, nodes=nodes, inputs={**graph.inputs, **inputs}),
        [block.mixture for block in streamed.values()],
        n_sets=n_sets,
        overrides=(pinned,),
    )


def _copied(node: Node) -> Node:
    """Return a node of its own, which may be elsewhere than that of the graph of other steps."""
    expansion, of_prompts = (tuple(map(_copied, parts)) for parts in (node.expansion, node.prompt_expansion))
    return replace(node, expansion=expansion, prompt_expansion=of_prompts)


def _blocks(graph: Graph, is_streamed: Callable[[Node], bool]) -> list[list[Node]]:
    """Return the streamed products of a graph; products with only element-wise operations between them are together."""
    blocks: list[list[Node]] = []
    is_open = False
    for node in graph.nodes:
        if node.op == "linear" and _can_renew(node) and is_streamed(node):
            if not is_open or blocks[-1][0].layer != node.layer:
                blocks.append([])
            blocks[-1].append(node)
            is_open = True
        elif node.op not in ELEMENTWISE and node.op not in VIEWS:
            is_open = False
    return blocks


def _can_renew(node: Node) -> bool:
    weight = node.weight("weight")
    return not weight.is_derived and math.prod(map(int, weight.shape)) % MATRIX_VALUES == 0


class _Block:
    """Products with shared matrices.

    Attributes:
        nodes: the new node of each one.
        ticks: an operation of the host, before which the matrices are copied.
        inputs: inputs of that operation.
        mixture: what is copied.
    """

    def __init__(self, block: Sequence[Node], of_set: int, number: int, shared: Shared) -> None:
        g = block[0].output.builder
        assert isinstance(g, GraphBuilder)
        copies: list[tuple[Weight, Weight]] = []
        with g.collecting() as ticks, g.layer(block[0].layer):
            table = g.table(f"{PREFIX}table {number}", lambda: np.zeros(1, np.int32))
            ids = g.input(
                f"{PREFIX}tick {number}",
                (N_TOKENS, 1),
                "i32",
                fill=lambda batch: np.zeros((len(batch.positions), 1), np.int32),
            )
            tracer(g)("renumber", ids=ids, table=table)
        self.ticks = list(ticks)
        self.inputs: list[Input] = [table, ids]
        self.nodes = {node: _with_shared(node, of_set, copies, shared) for node in block}
        self.mixture = StreamedMixture(ids, self.nodes[block[0]], copies, is_dense=True)


def _with_shared(node: Node, of_set: int, copies: list[tuple[Weight, Weight]], shared: Shared) -> Node:
    """Return a product with the shared matrix of a set, and add it to ``copies``; a bias is copied once."""
    operands = dict(node.inputs)
    for name, tensor in operands.items():
        if not isinstance(tensor, Weight):
            continue
        if name != "weight":
            operands[name] = replace(tensor, name=f"{PREFIX}{tensor.name}")
            continue
        operands[name] = shared_copy(tensor, of_set, copies, shared)
    return replace(node, inputs=operands)
