"""MoE dispatch: rules for products with one of several matrices for each row, experts or a matrix for each head.

A pair is a token and one of the matrices it uses. Few pairs are products of their own (shaders/matvec.comp), of which
each reads a whole matrix. Of many, those of one matrix lie side by side (shaders/group.comp), and a tile of them reads
it once.
"""

from __future__ import annotations

from pumice.plugin import N_TOKENS, Limits, Node, Tensor
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.matrices import Experts, Matrix, Routes, matrix, use_cooperative
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.lower.tiles import TILE_VECTORS, TileProduct, cooperative_product, tiled_product
from pumice_vulkan.lower.vectors import VectorProduct, vector_product
from pumice_vulkan.memory import Place
from pumice_vulkan.tuning import expert_shape

ROUTES = "pairs of tokens and experts"  # scratch memory, and whose they are

# From how many tokens of a matrix on, on average, they share tiles. Alone each reads the matrix; a tile reads it once,
# but multiplies at its full width however few tokens it has. On matrix units that hides behind reading: an H200 takes
# 1.8 ms for a step of 12 layers of Qwen3-30B-A3B with one token an expert, and 2.7 alone. In shared memory it does not:
# a card with 500 GB/s and 20 TFLOP/s, of which tiles reach a third, reads a weight in 1.1 ps and multiplies it in 9.6.
COOPERATIVE_TOKENS, TILED_TOKENS = 1, 8


def _claims(node: Node, limits: Limits) -> bool:
    return node.inputs["x"].shape[0] == N_TOKENS and node.weight("weight").type in FORMATS


def _batched_linear(at: Lowering, node: Node) -> None:
    x, weight = node.inputs["x"], node.weight("weight")
    _multiply(at, x, matrix(at, weight), at.place(node.output), Experts(int(weight.shape[0])))


def gated_experts(at: Lowering, gate: Node, up: Node, last: Node) -> bool:
    """Both products and the gate in one dispatch; False where pairs are many, or the kernel cannot do it."""
    x = gate.inputs["x"]
    matrices = [matrix(at, node.weight("weight")) for node in (gate, up)]
    experts = _experts(at, gate)
    if not _are_few(at, x, matrices[0], experts) or matrices[0].place.buffer is not matrices[1].place.buffer:
        return False
    vector_product(at, VectorProduct(x, matrices, [at.place(last.output)], paired=True, experts=experts))
    return True


def _experts(at: Lowering, node: Node) -> Experts:
    x, ids = node.inputs["x"], node.inputs["ids"]
    return Experts(int(ids.shape[1]), at.place(ids), own_x=len(x.shape) == 3)


def _are_few(at: Lowering, x: Tensor, weight: Matrix, experts: Experts) -> bool:
    """Whether a matrix has few tokens, on average."""
    least = COOPERATIVE_TOKENS if use_cooperative(at, weight) else TILED_TOKENS
    return at.rows(x) * experts.n_used // weight.n_matrices < least


def _mul_mat_id(at: Lowering, node: Node) -> None:
    x, weight, ids = node.inputs["x"], node.weight("weight"), node.inputs["ids"]
    _multiply(at, x, matrix(at, weight), at.place(node.output), _experts(at, node), ids)


def _multiply(at: Lowering, x: Tensor, weight: Matrix, y: Place, experts: Experts, ids: Tensor | None = None) -> None:
    if _are_few(at, x, weight, experts):
        vector_product(at, VectorProduct(x, [weight], [y], experts=experts))
    elif use_cooperative(at, weight):
        shape = expert_shape(at.device, at.rows(x) * experts.n_used // weight.n_matrices)
        routes = _routes(at, x, weight, experts, ids, shape.n)
        cooperative_product(at, TileProduct(x, weight, y, routes=routes), shape)
    else:
        routes = _routes(at, x, weight, experts, ids, TILE_VECTORS)
        tiled_product(at, TileProduct(x, weight, y, routes=routes))


def _routes(at: Lowering, x: Tensor, weight: Matrix, experts: Experts, ids: Tensor | None, width: int) -> Routes:
    """Pairs in tiles of ``width``; gate, up and down, which have the same ids, share them."""
    n_rows, n_used, n_matrices = at.rows(x), experts.n_used, weight.n_matrices
    if experts.ids is None:
        return Routes(-(-n_rows // width), n_used, n_used, experts.flags)
    n_pairs = n_rows * n_used
    n_tiles = n_pairs // width + min(n_pairs, n_matrices)  # at most; all but one of each matrix are full
    memory = at.scratch(ROUTES, 4 * (n_pairs + 1 + 3 * n_tiles))
    order, tiles = memory.part(0, n_pairs), memory.part(n_pairs, 1 + 3 * n_tiles)
    if at.remembered.get(ROUTES) != (ids, n_matrices, width):
        at.dispatch(
            "group",
            count=x,
            reads={"ids": experts.ids},
            writes={"tiles": tiles, "order": order},
            push={"n_used": n_used},
            constants=[n_matrices, width],
            grid=(1, 1, 1),
        )
        at.remembered[ROUTES] = ids, n_matrices, width
    return Routes(n_tiles, 1, n_used, experts.flags, tiles, order)


RULES = {"batched_linear": Rule(_batched_linear, _claims), "mul_mat_id": Rule(_mul_mat_id, _claims)}
