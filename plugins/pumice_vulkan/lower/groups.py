"""Rules for groups (fuse.py): one kernel for few rows if there is one, else node by node."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Tensor
from pumice.plugin.unstable import Node
from pumice_vulkan import tuning
from pumice_vulkan.fuse import DEFERRED, GROUP, Group
from pumice_vulkan.kv_cache import is_quantized
from pumice_vulkan.lower.attention_decode import attend_alone, takes_norms
from pumice_vulkan.lower.attention_terms import with_rotations
from pumice_vulkan.lower.elementwise import elementwise
from pumice_vulkan.lower.experts import gated_experts
from pumice_vulkan.lower.few import FewProduct, few_order, few_product, use_few
from pumice_vulkan.lower.halves import Order, normed_halves
from pumice_vulkan.lower.matrices import Matrix, matrix, use_cooperative
from pumice_vulkan.lower.norms import norm_sum, scaled_norm
from pumice_vulkan.lower.products import product
from pumice_vulkan.lower.recurrent import convolved
from pumice_vulkan.lower.route import expert_sum, route
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product
from pumice_vulkan.lower.vectors import (
    INT8_BLOCK_BYTES,
    MOST_MATRICES,
    MOST_VECTORS,
    SHARED_X_BYTES,
    VectorProduct,
    use_int8,
    vector_product,
)
from pumice_vulkan.memory import BufferSlice


def _group(lowering: Lowering, node: Node) -> None:
    group: Group = node.attrs["group"]
    if not KINDS[group.kind](lowering, group.nodes):
        for part in group.nodes:
            lowering.lower(part)


def _normed(lowering: Lowering, nodes: list[Node]) -> bool:
    norm, *linears = nodes
    matrices = [_matrix(lowering, linear) for linear in linears]
    if _in_half(lowering, norm, matrices):
        for linear in linears:
            lowering.lower(linear)
        return True
    if not _are_vectors(lowering, norm, matrices):
        return False
    x, factors = _input(lowering, norm, matrices)
    left = list(zip(linears, matrices, strict=True))
    while left:
        first = left[0][1]
        together = [(linear, candidate) for linear, candidate in left if _go_together(candidate, first)]
        together = together[:MOST_MATRICES]
        left = [candidate for candidate in left if candidate not in together]
        biases = [linear.inputs.get("bias") for linear, _ in together]
        if len(together) > 1 and any(biases) and not all(biases):
            together, left = together[:1], [*together[1:], *left]
            biases = biases[:1]
        call = VectorProduct(
            x,
            [candidate for _, candidate in together],
            [lowering.place(linear.output) for linear, _ in together],
            [None if bias is None else lowering.place(bias) for bias in biases],
            norm=factors,
        )
        vector_product(lowering, call)
    return True


def _gated(lowering: Lowering, nodes: list[Node]) -> bool:
    norm, gate, up, last = nodes
    matrices, gelu = [_matrix(lowering, gate), _matrix(lowering, up)], last.op == "gelu_mul"
    shape = use_few(lowering, matrices[0], lowering.rows(norm.output), paired=True) if _go_together(*matrices) else None
    if shape and normed_halves(lowering, norm, _order(lowering, matrices[0], lowering.rows(norm.output))):
        y = lowering.place(last.output)
        few_product(lowering, FewProduct(norm.output, matrices, y, output=last.output, gelu=gelu), shape)
        return True
    if _in_half(lowering, norm, matrices):
        if _in_tiles(lowering, norm, matrices):
            y = lowering.place(last.output)
            tiles = TileProduct(norm.output, matrices[0], y, second=matrices[1], output=last.output, gelu=gelu)
            cooperative_product(lowering, tiles)
            return True
        for part in (gate, up, last):
            lowering.lower(part)
        return True
    if not _are_vectors(lowering, norm, matrices) or not _go_together(*matrices):
        return False
    x, factors = _input(lowering, norm, matrices)
    ys = [lowering.place(last.output)]
    call = VectorProduct(x, matrices, ys, norm=factors, paired=True, gelu=gelu, output=last.output)
    vector_product(lowering, call)
    return True


def _residual(lowering: Lowering, nodes: list[Node]) -> bool:
    linear, add = nodes
    x, bias = linear.inputs["x"], linear.inputs.get("bias")
    (other,) = [tensor for tensor in add.operands() if tensor is not linear.output]
    weight = _matrix(lowering, linear)
    if 0 < tuning.ADDED_ALONE <= lowering.rows(x) * weight.n_rows:
        for part in nodes:
            lowering.lower(part)
        return True
    product(
        lowering,
        x,
        weight,
        lowering.place(add.output),
        None if bias is None else lowering.place(bias),
        lowering.place(other),
    )
    return True


def _normed_residual(lowering: Lowering, nodes: list[Node]) -> bool:
    norm, linear, add = nodes
    weight, bias = _matrix(lowering, linear), linear.inputs.get("bias")
    if _in_half(lowering, norm, [weight]):
        return _residual(lowering, [linear, add])
    if not _fits(lowering, norm, [weight]):
        lowering.lower(norm)
        return _residual(lowering, [linear, add])
    (other,) = [tensor for tensor in add.operands() if tensor is not linear.output]
    call = VectorProduct(
        norm.operands()[0],
        [weight],
        [lowering.place(add.output)],
        [None if bias is None else lowering.place(bias)],
        lowering.place(other),
        norm=_factors(lowering, norm),
    )
    vector_product(lowering, call)
    return True


def _attend(lowering: Lowering, nodes: list[Node]) -> bool:
    norms, ropes, rotations = ([node for node in nodes if node.op == op] for op in ("rms_norm", "rope", "hadamard"))
    (attention,) = (node for node in nodes if node.op in ("attention", "kv_store"))
    if rotations and not is_quantized(lowering.limits.kv_type):
        return False
    attention = with_rotations(attention, rotations)
    if not ropes:
        lowering.lower(attention)
        return True
    rope_q, rope_k = ropes
    if norms and takes_norms(lowering, rope_q):
        q, k = (norm.inputs["x"] for norm in norms)
        if attend_alone(lowering, attention, q, k, rope_q, norms):
            return True
    for norm in norms:
        lowering.lower(norm)
    if not attend_alone(lowering, attention, rope_q.inputs["x"], rope_k.inputs["x"], rope_q):
        for part in (rope_q, rope_k, attention):
            lowering.lower(part)
    return True


def _route(lowering: Lowering, nodes: list[Node]) -> bool:
    route(lowering, *nodes)
    return True


def _gated_experts(lowering: Lowering, nodes: list[Node]) -> bool:
    gate, up, last = nodes
    return gated_experts(lowering, gate, up, last)


def _expert_sum(lowering: Lowering, nodes: list[Node]) -> bool:
    weighed, add = nodes
    (other,) = [tensor for tensor in add.operands() if tensor is not weighed.output]
    expert_sum(lowering, weighed, add.output, other)
    return True


def _matrix(lowering: Lowering, linear: Node) -> Matrix:
    return matrix(lowering, linear.weight("weight"))


def _in_half(lowering: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Store the norm as float16 for products on matrix units, if all of them run there."""
    rows = lowering.rows(norm.output)
    few = [use_few(lowering, item, rows) is not None for item in matrices]
    orders = [_order(lowering, item, rows) for item in matrices]
    if any(few) != all(few) or (all(few) and any(order is not orders[0] for order in orders)):
        return False
    many = rows > MOST_VECTORS and all(use_cooperative(lowering, item) for item in matrices)
    order = orders[0] if all(few) else Order.ROWS
    return (all(few) or many) and normed_halves(lowering, norm, order)


def _order(lowering: Lowering, weight: Matrix, n_rows: int) -> Order:
    """Return the order in which a product of few rows reads them: no other dispatch has their float32 values."""
    return few_order(lowering, weight.n_columns, n_rows, weight.format.for_lanes)


def _in_tiles(lowering: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Return True if gate and up of a norm in float16 are one product in tiles."""
    return _go_together(*matrices) and use_few(lowering, matrices[0], lowering.rows(norm.output)) is None


def _are_vectors(lowering: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Return True if one dispatch multiplies several matrices by few rows: a norm in int8, or floats."""
    if _fits(lowering, norm, matrices):
        return True
    rows = lowering.rows(norm.output)
    if lowering.invariant or rows > MOST_VECTORS:
        return False
    return not any(use_int8(lowering, item) or use_few(lowering, item, rows) for item in matrices)


def _input(lowering: Lowering, norm: Node, matrices: list[Matrix]) -> tuple[Tensor, tuple[BufferSlice, float] | None]:
    """Return x with the factors of a norm that the kernel applies, or the norm's result."""
    if _fits(lowering, norm, matrices):
        return norm.operands()[0], _factors(lowering, norm)
    lowering.lower(norm)
    return norm.output, None


def _factors(lowering: Lowering, norm: Node) -> tuple[BufferSlice, float]:
    """Return a norm's weight and epsilon."""
    return lowering.place(norm.operands()[1]), float(norm.attrs["eps"])


def _fits(lowering: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Return True if the kernel for few rows can apply the norm itself.

    The order of its sums depends on the number of rows.
    """
    if lowering.invariant:
        return False
    rows = lowering.rows(norm.output)
    return rows <= MOST_VECTORS and all(
        use_int8(lowering, item) and rows * item.row_blocks * INT8_BLOCK_BYTES <= SHARED_X_BYTES for item in matrices
    )


def _go_together(first: Matrix, second: Matrix) -> bool:
    return first.format is second.format and first.place.buffer is second.place.buffer


KINDS: dict[str, Callable[[Lowering, list[Node]], bool]] = {
    "normed": _normed,
    "normed residual": _normed_residual,
    "gated": _gated,
    "residual": _residual,
    "attend": _attend,
    "gated experts": _gated_experts,
    "expert sum": _expert_sum,
    "route": _route,
    "elementwise": elementwise,
    "convolved": convolved,
    "scaled norm": scaled_norm,
    "norm sum": norm_sum,
}


def _nothing(lowering: Lowering, node: Node) -> None:
    """A node in a group needs no kernel: its group computes it."""


RULES = {GROUP: Rule(_group), DEFERRED: Rule(_nothing)}
