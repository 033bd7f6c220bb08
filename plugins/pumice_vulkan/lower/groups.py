"""Rules for groups (fuse.py): for few rows one kernel where there is one, else node by node."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Node
from pumice_vulkan.fuse import DEFERRED, GROUP, Group
from pumice_vulkan.lower.attention_decode import attend_alone
from pumice_vulkan.lower.elementwise import elementwise
from pumice_vulkan.lower.experts import gated_experts
from pumice_vulkan.lower.few import FewProduct, few_product, use_few
from pumice_vulkan.lower.halves import normed_halves
from pumice_vulkan.lower.matrices import Matrix, matrix, use_cooperative
from pumice_vulkan.lower.norms import scaled_norm
from pumice_vulkan.lower.products import product
from pumice_vulkan.lower.recurrent import convolved
from pumice_vulkan.lower.route import expert_sum, route
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.lower.vectors import (
    INT8_BLOCK_BYTES,
    MOST_MATRICES,
    MOST_VECTORS,
    SHARED_X_BYTES,
    VectorProduct,
    use_int8,
    vector_product,
)


def _group(at: Lowering, node: Node) -> None:
    group: Group = node.attrs["group"]
    if not KINDS[group.kind](at, group.nodes):
        for part in group.nodes:
            at.lower(part)


def _normed(at: Lowering, nodes: list[Node]) -> bool:
    norm, *linears = nodes
    matrices = [_matrix(at, linear) for linear in linears]
    if _in_half(at, norm, matrices):
        for linear in linears:
            at.lower(linear)
        return True
    if not _fits(at, norm, matrices):
        return False
    x, weight = norm.operands()
    left = list(zip(linears, matrices, strict=True))
    while left:
        first = left[0][1]
        together = [(linear, each) for linear, each in left if _go_together(each, first)]
        together = together[:MOST_MATRICES]
        left = [each for each in left if each not in together]
        biases = [linear.inputs.get("bias") for linear, _ in together]
        if len(together) > 1 and any(biases) and not all(biases):
            together, left = together[:1], [*together[1:], *left]
            biases = biases[:1]
        call = VectorProduct(
            x,
            [each for _, each in together],
            [at.place(linear.output) for linear, _ in together],
            [None if bias is None else at.place(bias) for bias in biases],
            norm=(at.place(weight), float(norm.attrs["eps"])),
        )
        vector_product(at, call)
    return True


def _gated(at: Lowering, nodes: list[Node]) -> bool:
    norm, gate, up, last = nodes
    matrices = [_matrix(at, gate), _matrix(at, up)]
    shape = use_few(at, matrices[0], at.rows(norm.output), paired=True) if _go_together(*matrices) else None
    if shape and normed_halves(at, norm, tiled=True):
        few_product(at, FewProduct(norm.output, matrices, at.place(last.output), output=last.output), shape)
        return True
    if _in_half(at, norm, matrices):
        for part in (gate, up, last):
            at.lower(part)
        return True
    if not _fits(at, norm, matrices) or not _go_together(*matrices):
        return False
    x, weight = norm.operands()
    factors = at.place(weight), float(norm.attrs["eps"])
    call = VectorProduct(x, matrices, [at.place(last.output)], norm=factors, paired=True, output=last.output)
    vector_product(at, call)
    return True


def _residual(at: Lowering, nodes: list[Node]) -> bool:
    linear, add = nodes
    x, bias = linear.inputs["x"], linear.inputs.get("bias")
    (other,) = [tensor for tensor in add.operands() if tensor is not linear.output]
    product(
        at,
        x,
        _matrix(at, linear),
        at.place(add.output),
        None if bias is None else at.place(bias),
        at.place(other),
    )
    return True


def _normed_residual(at: Lowering, nodes: list[Node]) -> bool:
    norm, linear, add = nodes
    weight, bias = _matrix(at, linear), linear.inputs.get("bias")
    if _in_half(at, norm, [weight]):
        return _residual(at, [linear, add])
    if not _fits(at, norm, [weight]):
        at.lower(norm)
        return _residual(at, [linear, add])
    x, factors = norm.operands()
    (other,) = [tensor for tensor in add.operands() if tensor is not linear.output]
    call = VectorProduct(
        x,
        [weight],
        [at.place(add.output)],
        [None if bias is None else at.place(bias)],
        at.place(other),
        norm=(at.place(factors), float(norm.attrs["eps"])),
    )
    vector_product(at, call)
    return True


def _attend(at: Lowering, nodes: list[Node]) -> bool:
    rope_q, rope_k, attention = nodes
    return attend_alone(at, attention, rope_q.inputs["x"], rope_k.inputs["x"], rope_q)


def _route(at: Lowering, nodes: list[Node]) -> bool:
    route(at, *nodes)
    return True


def _gated_experts(at: Lowering, nodes: list[Node]) -> bool:
    gate, up, last = nodes
    return gated_experts(at, gate, up, last)


def _expert_sum(at: Lowering, nodes: list[Node]) -> bool:
    weighed, add = nodes
    (other,) = [tensor for tensor in add.operands() if tensor is not weighed.output]
    expert_sum(at, weighed, add.output, other)
    return True


def _matrix(at: Lowering, linear: Node) -> Matrix:
    return matrix(at, linear.weight("weight"))


def _in_half(at: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Normalize for products on matrix units, if all of them are."""
    rows = at.rows(norm.output)
    few = [use_few(at, each, rows) is not None for each in matrices]
    if any(few) != all(few):
        return False
    many = rows > MOST_VECTORS and all(use_cooperative(at, each) for each in matrices)
    return (all(few) or many) and normed_halves(at, norm, tiled=all(few))


def _fits(at: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Whether the kernel for few rows can normalize them itself."""
    rows = at.rows(norm.output)
    return rows <= MOST_VECTORS and all(
        use_int8(at, each) and rows * each.row_blocks * INT8_BLOCK_BYTES <= SHARED_X_BYTES for each in matrices
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
}


def _nothing(at: Lowering, node: Node) -> None:
    """Its group computes it."""


RULES = {GROUP: Rule(_group), DEFERRED: Rule(_nothing)}
