"""Bytes and operations that a step of a placed model takes on each device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.engine.placement.overrides import DeviceName
from pumice.graph import N_OUTPUTS, Graph, KVState, Node, RecurrentState, Segment, Weight, concrete

PRODUCTS = ("linear", "batched_linear", "mul_mat_id")
ATTENTION = "attention"
_FLOAT_COST = 3.0  # an operation of attention on a processor, in float32, in operations of products of int8


@dataclass(frozen=True)
class NodeCost:
    """Memory traffic and arithmetic of one operation.

    Attributes:
        weight_bytes: bytes of weights that every step reads, as far as ``share`` says.
        share: share of the weights that a row needs: experts used / experts; 1 for others.
        row_bytes: further bytes per row, such as the row of an embedding.
        row_flops: floating-point operations per row.
        position_bytes: bytes of the KV cache per position before the step.
        window: maximum positions that are read; 0: all.
        of_outputs: rows are those of the output, not all tokens.
        type: name of the type of a product's weights; empty for other operations.
        in_place: a GPU reads the weights in host memory.
        tile: rows in which an expert's product is computed, if the step has as many.
        position_flops: floating-point operations per row and position that the row sees.
    """

    weight_bytes: int = 0
    share: float = 1.0
    row_bytes: float = 0.0
    row_flops: float = 0.0
    position_bytes: float = 0.0
    window: int = 0
    of_outputs: bool = False
    type: str = ""
    in_place: bool = False
    tile: int = 1
    position_flops: float = 0.0

    def n_bytes(self, n_tokens: int, n_outputs: int, depth: int) -> float:
        """Return the bytes that a step moves. Each row chooses its experts independently and evenly."""
        rows = n_outputs if self.of_outputs else n_tokens
        touched = 1.0 if self.share >= 1 else 1 - (1 - self.share) ** rows
        positions = min(depth, self.window) if self.window else depth
        return self.weight_bytes * touched + self.row_bytes * rows + self.position_bytes * positions

    def flops(self, n_tokens: int, n_outputs: int, depth: int = 0) -> float:
        """Return the floating-point operations of a step, with those of rows that fill tiles of experts."""
        rows = n_outputs if self.of_outputs else n_tokens
        if self.position_flops:
            positions = depth + rows / 2
            return self.position_flops * rows * (min(positions, self.window) if self.window else positions)
        if self.share >= 1 or self.tile == 1 or rows < self.tile:
            return self.row_flops * rows
        touched, tiles = 1 - (1 - self.share) ** rows, rows * self.share / self.tile  # of an expert
        return self.row_flops / self.share * self.tile * max(touched, tiles + touched / 2)


@dataclass(frozen=True)
class StepPart:
    """The operations of one segment, and the bytes that enter and leave it.

    Attributes:
        device: where it runs.
        nodes: its operations.
        crossing_bytes: bytes per token.
        output_bytes: bytes per row of the output, such as logits.
        groups: operations that start together, in order; empty: each starts alone.
        joined: as ``Launches.joined``.
        offload: the device is a GPU.
    """

    device: DeviceName
    nodes: tuple[NodeCost, ...]
    crossing_bytes: float
    output_bytes: float = 0.0
    groups: tuple[tuple[NodeCost, ...], ...] = ()
    joined: tuple[tuple[NodeCost, ...], ...] = ()
    offload: bool = False


def step_parts(
    segments: Sequence[Segment], graph: Graph, limits: Limits, backends: Mapping[str, Backend]
) -> list[StepPart]:
    """Return the costs of the segments of one graph, in order; ``backends`` by name say how operations start."""
    sizes = dict.fromkeys(limits.sizes, 1)
    inputs = set(graph.inputs.values())
    parts = []
    for segment in segments:
        crossing = [tensor for tensor in (*segment.inputs, *segment.outputs) if tensor not in inputs]
        n_bytes = {True: 0.0, False: 0.0}  # by whether rows are those of the output
        for tensor in crossing:
            n_bytes[tensor.shape[:1] == (N_OUTPUTS,)] += 4.0 * math.prod(concrete(tensor.shape, sizes))
        device = DeviceName(segment.backend, segment.device)
        backend = backends[segment.backend]
        launches = backend.launches(segment, limits)
        starts = (launches.groups, launches.joined) if launches else ((), ())
        costs = partial(_costs, limits=limits, tile=backend.expert_rows, on_host=not backend.offload)
        groups, joined = (tuple(costs(group) for group in several) for several in starts)
        nodes, of_all, of_output = costs(segment.nodes), n_bytes[False], n_bytes[True]
        parts.append(StepPart(device, nodes, of_all, of_output, groups, joined, backend.offload))
    return parts


def _costs(nodes: Sequence[Node], limits: Limits, tile: int, on_host: bool) -> tuple[NodeCost, ...]:
    costs: list[NodeCost] = []
    for node in nodes:
        parts = [replace(cost, tile=tile) if cost.share < 1 else cost for cost in node_costs(node, limits)]
        if on_host and parts:
            parts[-1] = _with_values(parts[-1], node, limits)
        costs += parts
    return tuple(costs)


def _with_values(cost: NodeCost, node: Node, limits: Limits) -> NodeCost:
    """Return a cost with attention's arithmetic and the values that other operations of a processor read and write.

    A GPU computes attention in matrix units, and fuses most of the others.
    """
    if node.op == ATTENTION:
        heads = math.prod(map(int, node.inputs["q"].shape[1:]))
        return replace(cost, position_flops=4.0 * heads * _FLOAT_COST)
    if node.op in PRODUCTS or node.op in ("embedding", "reshape") or not node.output.shape:
        return cost
    sizes, rows = dict.fromkeys(limits.sizes, 1), node.output.shape[0]
    values = [tensor for tensor in (*node.operands(), node.output) if tensor.shape[:1] == (rows,)]
    n_values = sum(math.prod(concrete(tensor.shape, sizes)) for tensor in values)
    return replace(cost, row_bytes=cost.row_bytes + 4.0 * n_values) if isinstance(rows, str) else cost


def node_costs(node: Node, limits: Limits) -> Iterator[NodeCost]:
    """Yield the costs of a node, or of the parts of a composite one."""
    if node.expansion:
        for part in node.expansion:
            yield from node_costs(part, limits)
        return
    of_outputs = bool(node.output.shape) and node.output.shape[0] == N_OUTPUTS
    weights = [tensor for tensor in node.operands() if isinstance(tensor, Weight)]
    if node.op in PRODUCTS:
        weight = node.weight("weight")
        share = int(node.inputs["ids"].shape[-1]) / int(weight.shape[0]) if node.op == "mul_mat_id" else 1.0
        flops = 2.0 * math.prod(map(int, weight.shape)) * share
        n_bytes = sum(item.nbytes for item in weights)
        in_place = limits.is_in_place(weight.name)
        yield NodeCost(n_bytes, share, row_flops=flops, of_outputs=of_outputs, type=weight.type.name, in_place=in_place)
    elif node.op == "embedding":
        weight = node.weight("weight")
        yield NodeCost(row_bytes=weight.nbytes / int(weight.shape[0]), of_outputs=of_outputs)
    else:
        cost = NodeCost(sum(item.nbytes for item in weights), of_outputs=of_outputs)
        if isinstance(node.state, KVState):
            cells = limits.n_blocks[node.state.window] * limits.block_size
            cost = replace(cost, position_bytes=limits.state_bytes(node.state) / cells, window=node.state.window)
        elif isinstance(node.state, RecurrentState):
            cost = replace(cost, row_bytes=2 * limits.state_bytes(node.state) / limits.n_slots)
        yield cost
