"""Rules for looking up, choosing and arranging rows and values."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import GGMLType, Node, Tensor, Weight, concrete
from pumice_vulkan.lower.rule import Lowering, Rule, local_size

#: Types that shaders/ggml_blocks.glsl decodes.
DECODED = {
    GGMLType[name]
    for name in (
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ4_NL", "IQ4_XS", "MXFP4"),
    )
}


def inner(tensor: Tensor, axes: int = 1) -> int:
    """How many groups of its last ``axes`` axes a row has."""
    return math.prod(concrete(tensor.shape[1 : len(tensor.shape) - axes], 0, 0))


def _each(at: Lowering, kernel: str, local: int, node: Node, reads: list[Tensor], push: list[int | float]) -> None:
    """A kernel with an invocation for each value of the result."""
    y = node.output
    at.dispatch(
        kernel,
        count=y,
        reads=[at.place(tensor) for tensor in reads],
        writes=[at.place(y)],
        push=push,
        grid=at.grid(-(-at.rows(y) * at.width(y) // local)),
    )


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.operands()
    assert isinstance(weight, Weight)
    width = math.prod(concrete(weight.shape[1:], 0, 0))
    table = at.upload(weight, "gguf", lambda: [np.ascontiguousarray(weight.data)])[0]
    y = node.output
    at.dispatch(
        f"embedding.{weight.type.name.lower()}",
        count=y,
        reads=[table, at.place(ids)],
        writes=[at.place(y)],
        push=[at.width(ids), width, weight.data.nbytes // int(weight.shape[0])],
        grid=at.grid(-(-at.rows(y) * at.width(y) // 128)),
    )


def _decodes(node: Node) -> bool:
    weight = node.inputs[0]
    return isinstance(weight, Weight) and (
        weight.type in DECODED if len(weight.shape) > 1 else weight.type.name == "F32"
    )


def _get_rows(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    _each(at, "rows.get", 256, node, [x, ids], [1, at.width(x)])


def _slice(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, stop = node.attrs["start"], node.attrs["stop"]
    _each(at, "rows.slice", 256, node, [x], [inner(x), stop - start, int(x.shape[-1]), start])


def _concat(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    width = int(node.output.shape[-1])
    _each(at, "rows.concat", 256, node, [x, y], [inner(x), width, int(x.shape[-1]), inner(y)])


def _concatenates(node: Node) -> bool:
    x, y = node.operands()
    return x.shape[0] == y.shape[0] and inner(y) in (1, inner(x))


def _gather(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    _each(at, "gather", 64, node, [x, ids], [inner(ids), int(ids.shape[-1]), int(x.shape[-1])])


def _sum(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = node.attrs["axis"]
    n = int(x.shape[axis])
    n_inner = math.prod(concrete(x.shape[len(x.shape) + axis + 1 :], 0, 0))
    _each(at, "sum", 64, node, [x], [at.width(x) // n // n_inner, n, n_inner])


def _softmax(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(at, "softmax", node, x, [])


def _top_k(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(at, "top_k", node, x, [node.attrs["k"]])


def _each_row(at: Lowering, kernel: str, node: Node, x: Tensor, push: list[int | float]) -> None:
    """A kernel with a workgroup for each row of the last axis."""
    width = int(x.shape[-1])
    at.dispatch(
        kernel,
        count=x,
        reads=[at.place(x)],
        writes=[at.place(node.output)],
        push=[inner(x), width, *push],
        constants=[local_size(width)],
        grid=at.grid(at.rows(x) * inner(x)),
    )


RULES = {
    "embedding": Rule(_embedding, _decodes),
    "get_rows": Rule(_get_rows),
    "slice": Rule(_slice),
    "concat": Rule(_concat, _concatenates),
    "gather": Rule(_gather),
    "sum": Rule(_sum),
    "softmax": Rule(_softmax),
    "top_k": Rule(_top_k),
}
