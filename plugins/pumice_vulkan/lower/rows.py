"""Rules for looking up, choosing and arranging rows and values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Limits, Node, Tensor, fixed
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.matrices import matrix
from pumice_vulkan.lower.rule import Lowering, Rule, local_size
from pumice_vulkan.shaders import interface

MANY_SUMMED = 32  # values that a workgroup adds up together
MOST_BALANCED = 8  # rows of a matrix that an invocation keeps in registers


def inner(tensor: Tensor, axes: int = 1) -> int:
    """How many groups of its last ``axes`` axes a row has."""
    return math.prod(fixed(tensor.shape[1 : len(tensor.shape) - axes]))


def _each(at: Lowering, kernel: str, local: int, node: Node, reads: dict[str, Tensor], **push: int) -> None:
    """A kernel with an invocation for each value of the result, its last place."""
    y = node.output
    at.dispatch(
        kernel,
        count=y,
        reads={name: at.place(tensor) for name, tensor in reads.items()},
        writes={interface(kernel).places[-1]: at.place(y)},
        push=push,
        grid=at.grid(-(-at.rows(y) * at.width(y) // local)),
    )


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    y = node.output
    if len(weight.shape) == 1:
        _each(at, "rows.get", 256, node, {"x": weight, "ids": ids}, n_inner=at.width(ids), width=1)
        return
    table = matrix(at, weight)
    quarters = -(-table.n_columns // 4)
    at.dispatch(
        f"embedding.{table.format.name}",
        count=y,
        reads={"weights": table.place, "ids": at.place(ids)},
        writes={"y": at.place(y)},
        push={"n_inner": at.width(ids), "n_rows": table.n_rows, "n_columns": table.n_columns},
        constants=[table.row_blocks],
        grid=at.grid(-(-at.rows(y) * at.width(ids) * quarters // 128)),
    )


def _claims_table(node: Node, limits: Limits) -> bool:
    weight = node.weight("weight")
    return weight.type in FORMATS if len(weight.shape) > 1 else weight.type.name == "F32"


def _get_rows(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    _each(at, "rows.get", 256, node, {"x": x, "ids": ids}, n_inner=1, width=at.width(x))


def _ngram_rows(at: Lowering, node: Node) -> None:
    (tokens,) = node.operands()
    multipliers, sizes, offsets = (node.attrs[name] for name in ("multipliers", "sizes", "offsets"))

    def numbers() -> NDArray[np.uint32]:
        words = np.array(multipliers, "<u8").view("<u4")
        return np.concatenate([words, np.array(sizes + offsets, np.uint32)])

    at.dispatch(
        "ngram_rows",
        count=tokens,
        reads={
            "tokens": at.place(tokens),
            "numbers": at.constant(("ngram rows", multipliers, sizes, offsets), numbers),
        },
        writes={"y": at.place(node.output)},
        push={"n_tokens": int(tokens.shape[-1]), "n_heads": len(sizes)},
        grid=at.grid(-(-at.rows(tokens) * len(sizes) // 64)),
    )


def _slice(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, stop = node.attrs["start"], node.attrs["stop"]
    if inner(x) == 1 and at.view(node.output, x, start):
        return
    sizes = {"n_inner": inner(x), "width": stop - start, "x_width": int(x.shape[-1])}
    _each(at, "rows.slice", 256, node, {"x": x}, **sizes, start=start)


def _concat(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    sizes = {"n_inner": inner(x), "width": int(node.output.shape[-1]), "x_width": int(x.shape[-1])}
    _each(at, "rows.concat", 256, node, {"x": x, "y": y}, **sizes, y_inner=inner(y))


def _concatenates(node: Node, limits: Limits) -> bool:
    x, y = node.operands()
    return x.shape[0] == y.shape[0] and inner(y) in (1, inner(x))


def _gather(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    sizes = {"n_inner": inner(ids), "width": int(ids.shape[-1]), "x_width": int(x.shape[-1])}
    _each(at, "gather", 64, node, {"x": x, "ids": ids}, **sizes)


def _sum(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = node.attrs["axis"]
    n = int(x.shape[axis])
    n_inner = math.prod(fixed(x.shape[len(x.shape) + axis + 1 :]))
    together = n >= MANY_SUMMED
    n_sums = at.rows(x) * (at.width(x) // n)
    at.dispatch(
        "sum",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": at.place(node.output)},
        push={"n_outer": at.width(x) // n // n_inner, "n": n, "n_inner": n_inner},
        constants=[together],
        grid=at.grid(n_sums if together else -(-n_sums // 64)),
    )


def _softmax(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(at, "softmax", node, x)


def _sinkhorn(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    n = int(x.shape[-1])
    n_matrices = at.width(x) // (n * n)
    at.dispatch(
        "sinkhorn",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": at.place(node.output)},
        push={"n_matrices": n_matrices, "n_iterations": node.attrs["n_iterations"], "eps": node.attrs["eps"]},
        constants=[n],
        grid=at.grid(-(-at.rows(x) * n_matrices // 64)),
    )


def _fits_registers(node: Node, limits: Limits) -> bool:
    return int(node.output.shape[-1]) <= MOST_BALANCED


def _top_k(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(at, "top_k", node, x, k=node.attrs["k"])


def _each_row(at: Lowering, kernel: str, node: Node, x: Tensor, **push: int) -> None:
    """A kernel with a workgroup for each row of the last axis; its result is its last place."""
    width = int(x.shape[-1])
    at.dispatch(
        kernel,
        count=x,
        reads={"x": at.place(x)},
        writes={interface(kernel).places[-1]: at.place(node.output)},
        push={"n_inner": inner(x), "width": width, **push},
        constants=[local_size(width)],
        grid=at.grid(at.rows(x) * inner(x)),
    )


RULES = {
    "embedding": Rule(_embedding, _claims_table),
    "get_rows": Rule(_get_rows),
    "ngram_rows": Rule(_ngram_rows),
    "slice": Rule(_slice),
    "concat": Rule(_concat, _concatenates),
    "gather": Rule(_gather),
    "sum": Rule(_sum),
    "softmax": Rule(_softmax),
    "sinkhorn": Rule(_sinkhorn, _fits_registers),
    "top_k": Rule(_top_k),
}
