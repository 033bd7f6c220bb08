"""MoE dispatch: rules for products where each row selects one of several matrices, by expert or by head.

A pair is a token and one of its matrices. With few pairs, each is a product of its own (shaders/matvec.comp) that reads
a whole matrix. With many, pairs are sorted by matrix (shaders/group.comp), and a tile of pairs reads the matrix once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pumice.plugin import N_TOKENS, Tensor
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.formats import FORMATS, LANES_STEP
from pumice_vulkan.lower.few import FewProduct, lanes_product
from pumice_vulkan.lower.halves import Order, halves
from pumice_vulkan.lower.matrices import Experts, Matrix, Routes, matrix, use_cooperative
from pumice_vulkan.lower.route import grouped_route
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product, tile_numbers, tiled_product
from pumice_vulkan.lower.vectors import VectorProduct, vector_product
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import LANES_UNIT, expert_blocks, expert_lanes, expert_shape

ROUTES = "pairs of tokens and experts"  # name of the scratch memory, and key of its contents

# Average tokens per matrix from which on they share tiles. A token alone reads the whole matrix; a tile reads it once,
# but multiplies at full width even with few tokens. On matrix units the read time hides that: an H200 takes 1.8 ms for
# a step of 12 layers of Qwen3-30B-A3B with one token per expert, against 2.7 ms one by one. In shared memory it does
# not: a card with 500 GB/s and 20 TFLOP/s, a third of which tiles reach, reads a weight in 1.1 ps and multiplies it in
# 9.6.
COOPERATIVE_TOKENS, TILED_TOKENS = 1, 8
# In lanes they do from LEAST_LANES_ROWS tokens on if these use 1 / LANES_PART of the matrices: 4 sequences of
# Qwen3-30B-A3B, with 8 of 128 each, are 3.7 % faster on an H200. Fewer were not measured.
LEAST_LANES_ROWS, LANES_PART = 4, 4
USUAL_GROUP_THREADS, GROUP_THREADS = 256, 1024  # invocations that sort pairs; the latter where there are more pairs


def _claims(node: Node, limits: Limits) -> bool:
    return node.inputs["x"].shape[0] == N_TOKENS and node.weight("weight").type in FORMATS


def _batched_linear(lowering: Lowering, node: Node) -> None:
    x, weight = node.inputs["x"], node.weight("weight")
    pair_products(lowering, x, matrix(lowering, weight), lowering.place(node.output), Experts(int(weight.shape[0])))


def gated_experts(lowering: Lowering, gate: Node, up: Node, last: Node) -> bool:
    """Compute both products and the gate in one dispatch; return False for unsupported matrices."""
    x = gate.inputs["x"]
    matrices = [matrix(lowering, node.weight("weight")) for node in (gate, up)]
    experts, gelu = _experts(lowering, gate), last.op == "gelu_mul"
    if matrices[0].place.buffer is not matrices[1].place.buffer:
        return False
    if not _are_few(lowering, x, matrices[0], experts):
        if not _use_lanes(lowering, matrices[0]) or matrices[0].format is not matrices[1].format:
            return False
        call = FewProduct(x, matrices, lowering.place(last.output), output=last.output, gelu=gelu)
        _lanes(lowering, call, experts, gate.inputs["ids"])
        return True
    ys = [lowering.place(last.output)]
    vector_product(lowering, VectorProduct(x, matrices, ys, paired=True, gelu=gelu, experts=experts))
    return True


def _experts(lowering: Lowering, node: Node) -> Experts:
    x, ids = node.inputs["x"], node.inputs["ids"]
    return Experts(int(ids.shape[1]), lowering.place(ids), own_x=len(x.shape) == 3)


def _are_few(lowering: Lowering, x: Tensor, weight: Matrix, experts: Experts) -> bool:
    """Return True if a matrix has few tokens on average."""
    if lowering.invariant:
        return True
    n_rows = lowering.rows(x)
    if experts.ids is not None and _use_lanes(lowering, weight) and n_rows >= LEAST_LANES_ROWS:
        return LANES_PART * n_rows * experts.n_used < weight.n_matrices
    least = COOPERATIVE_TOKENS if use_cooperative(lowering, weight) else TILED_TOKENS
    return n_rows * experts.n_used // weight.n_matrices < least


def _mul_mat_id(lowering: Lowering, node: Node) -> None:
    x, weight, ids = node.inputs["x"], node.weight("weight"), node.inputs["ids"]
    pair_products(lowering, x, matrix(lowering, weight), lowering.place(node.output), _experts(lowering, node), ids)


def pair_products(
    lowering: Lowering, x: Tensor, weight: Matrix, y: BufferSlice, experts: Experts, ids: Tensor | None = None
) -> None:
    """Compute the product of each pair of a row of x and one of its matrices."""
    if _are_few(lowering, x, weight, experts):
        vector_product(lowering, VectorProduct(x, [weight], [y], experts=experts))
        return
    n_each = lowering.rows(x) * experts.n_used // weight.n_matrices
    if ids is not None and _use_lanes(lowering, weight):
        _lanes(lowering, FewProduct(x, [weight], y), experts, ids)
    elif use_cooperative(lowering, weight):
        shape = expert_shape(lowering.device, n_each)
        routes = _routes(lowering, x, weight, experts, ids, shape.n)
        cooperative_product(lowering, TileProduct(x, weight, y, routes=routes), shape)
    else:
        blocks = expert_blocks(n_each, tile_numbers(lowering, x, weight), lowering.device.threadgroup_memory_bytes)
        routes = _routes(lowering, x, weight, experts, ids, blocks.n)
        tiled_product(lowering, TileProduct(x, weight, y, routes=routes), blocks)


def _use_lanes(lowering: Lowering, weight: Matrix) -> bool:
    """Return True if shaders/matmul_lanes.comp multiplies experts' vectors by their matrices."""
    usable = use_cooperative(lowering, weight) and weight.format.for_lanes
    return usable and lowering.memory.lanes and weight.n_columns % LANES_STEP == 0


def _lanes(lowering: Lowering, call: FewProduct, experts: Experts, ids: Tensor) -> None:
    weight = call.weights[0]
    n_each = lowering.rows(call.x) * experts.n_used // weight.n_matrices
    shape = expert_lanes(weight.n_rows * len(call.weights), weight.n_columns, n_each, len(call.weights) > 1)
    routes = _routes(
        *(lowering, call.x, weight, experts, ids, shape.fragments_n * LANES_UNIT),
        before=lambda: halves(lowering, call.x, Order.LANE_ROWS),
    )
    lanes_product(lowering, dataclasses.replace(call, routes=routes), shape)


def _routes(
    lowering: Lowering,
    x: Tensor,
    weight: Matrix,
    experts: Experts,
    ids: Tensor | None,
    width: int,
    before: Callable[[], object] = lambda: None,
) -> Routes:
    """Sort pairs into tiles of ``width``; gate, up and down projections share the result for equal ids.

    ``before``: as for ``grouped_route``.
    """
    n_rows, n_used, n_matrices = lowering.rows(x), experts.n_used, weight.n_matrices
    if experts.ids is None:
        return Routes(-(-n_rows // width), n_used, n_used, experts.flags)
    n_pairs = n_rows * n_used
    n_tiles = n_pairs // width + min(n_pairs, n_matrices)  # upper bound: all but one tile per matrix are full
    memory = lowering.scratch(ROUTES, 4 * (n_pairs + 1 + 3 * n_tiles))
    order, tiles = memory.part(0, n_pairs), memory.part(n_pairs, 1 + 3 * n_tiles)
    if lowering.remembered.get(ROUTES) != (ids, n_matrices, width):
        if ids is None or not grouped_route(lowering, ids, width, tiles, order, before):
            lowering.dispatch(
                "group",
                count=x,
                reads={"ids": experts.ids},
                writes={"tiles": tiles, "order": order},
                push={"n_used": n_used},
                constants=[n_matrices, width, _group_threads(lowering, n_pairs)],
                grid=(1, 1, 1),
            )
        lowering.remembered[ROUTES] = ids, n_matrices, width
    return Routes(n_tiles, 1, n_used, experts.flags, tiles, order)


def _group_threads(lowering: Lowering, n_pairs: int) -> int:
    """Return the invocations that sort pairs: each takes some one after the other."""
    most = lowering.device.description.max_threads_per_threadgroup
    return min(GROUP_THREADS if n_pairs > USUAL_GROUP_THREADS else USUAL_GROUP_THREADS, most)


RULES = {"batched_linear": Rule(_batched_linear, _claims), "mul_mat_id": Rule(_mul_mat_id, _claims)}
