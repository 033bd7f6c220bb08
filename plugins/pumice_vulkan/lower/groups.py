"""Rules for groups (fuse.py): for few rows one kernel where there is one, else node by node."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Node, Weight
from pumice_vulkan.fuse import DEFERRED, GROUP, Group
from pumice_vulkan.lower.attention import attend_alone
from pumice_vulkan.lower.elementwise import binary
from pumice_vulkan.lower.products import MOST_VECTORS, SHARED_X_BYTES, Matrix, matrix, product, use_int8, vector_product
from pumice_vulkan.lower.rule import Lowering, Rule


def _group(at: Lowering, node: Node) -> None:
    from pumice_vulkan.lower import RULES

    group: Group = node.attrs["group"]
    if not KINDS[group.kind](at, group.nodes):
        for part in group.nodes:
            RULES[part.op].lower(at, part)


def _normed(at: Lowering, nodes: list[Node]) -> bool:
    norm, *linears = nodes
    matrices = [_matrix(at, linear) for linear in linears]
    if not _fits(at, norm, matrices):
        return False
    x, weight = norm.operands()
    left = list(zip(linears, matrices, strict=True))
    while left:
        first = left[0][1]
        together = [(linear, each) for linear, each in left if _go_together(each, first)]
        left = [(linear, each) for linear, each in left if not _go_together(each, first)]
        biases = [linear.inputs[2] for linear, _ in together]
        if len(together) > 1 and any(biases) and not all(biases):
            together, left = together[:1], [*together[1:], *left]
            biases = biases[:1]
        vector_product(
            at,
            x,
            [each for _, each in together],
            [at.place(linear.output) for linear, _ in together],
            [None if bias is None else at.place(bias) for bias in biases],
            norm=(at.place(weight), float(norm.attrs["eps"])),
        )
    return True


def _gated(at: Lowering, nodes: list[Node]) -> bool:
    from pumice_vulkan.lower import RULES

    norm, gate, up, silu, last = nodes
    matrices = [_matrix(at, gate), _matrix(at, up)]
    if not _fits(at, norm, matrices) or not _go_together(*matrices):
        for node in (norm, gate, up):
            RULES[node.op].lower(at, node)
        return _activated(at, [silu, last])
    x, weight = norm.operands()
    vector_product(
        at,
        x,
        matrices,
        [at.place(last.output)],
        norm=(at.place(weight), float(norm.attrs["eps"])),
        paired=True,
        output=last.output,
    )
    return True


def _activated(at: Lowering, nodes: list[Node]) -> bool:
    activation, product = nodes
    (x,) = activation.operands()
    (other,) = [tensor for tensor in product.operands() if tensor is not activation.output]
    binary(at, f"{activation.op}_mul", x, other, product.output)
    return True


def _residual(at: Lowering, nodes: list[Node]) -> bool:
    linear, add = nodes
    x, _, bias = linear.inputs
    assert x is not None
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


def _attend(at: Lowering, nodes: list[Node]) -> bool:
    rope_q, rope_k, attention = nodes
    q, k = rope_q.inputs[0], rope_k.inputs[0]
    assert q is not None
    assert k is not None
    return attend_alone(at, attention, q, k, rope_q)


def _matrix(at: Lowering, linear: Node) -> Matrix:
    weight = linear.inputs[1]
    assert isinstance(weight, Weight)
    return matrix(at, weight)


def _fits(at: Lowering, norm: Node, matrices: list[Matrix]) -> bool:
    """Whether the kernel for few rows can normalize them itself."""
    rows = at.rows(norm.output)
    return rows <= MOST_VECTORS and all(
        use_int8(at, each) and rows * each.row_blocks * 40 <= SHARED_X_BYTES for each in matrices
    )


def _go_together(first: Matrix, second: Matrix) -> bool:
    return first.format is second.format and first.place.buffer is second.place.buffer


KINDS: dict[str, Callable[[Lowering, list[Node]], bool]] = {
    "normed": _normed,
    "gated": _gated,
    "activated": _activated,
    "residual": _residual,
    "attend": _attend,
}


def _nothing(at: Lowering, node: Node) -> None:
    """Its group computes it."""


RULES = {GROUP: Rule(_group), DEFERRED: Rule(_nothing)}
