"""Rules for lookups, selections and arrangements of rows and values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Tensor, fixed
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.matrices import matrix
from pumice_vulkan.lower.rule import Lowering, Rule, local_size
from pumice_vulkan.shaders import interface

MANY_SUMMED = 32  # number of values from which on a workgroup shares a sum
MOST_SHARED = 4096  # maximum values in the memory of a workgroup, which has 16 KiB everywhere
MOST_BALANCED = 8  # maximum rows of a matrix in an invocation's registers


def inner(tensor: Tensor, axes: int = 1) -> int:
    """Return the number of groups of the last ``axes`` axes per row."""
    return math.prod(fixed(tensor.shape[1 : len(tensor.shape) - axes]))


def _each(lowering: Lowering, kernel: str, local: int, node: Node, reads: dict[str, Tensor], **push: int) -> None:
    """Append a kernel with one invocation per value of the result, which is its last place."""
    y = node.output
    lowering.dispatch(
        kernel,
        count=y,
        reads={name: lowering.place(tensor) for name, tensor in reads.items()},
        writes={interface(kernel).places[-1]: lowering.place(y)},
        push=push,
        grid=lowering.grid(-(-lowering.rows(y) * lowering.width(y) // local)),
    )


def _embedding(lowering: Lowering, node: Node) -> None:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    y = node.output
    if len(weight.shape) == 1:
        _each(lowering, "rows.get", 256, node, {"x": weight, "ids": ids}, n_inner=lowering.width(ids), width=1)
        return
    table = matrix(lowering, weight)
    quarters = -(-table.n_columns // 4)
    lowering.dispatch(
        f"embedding.{table.format.name}",
        count=y,
        reads={"weights": table.place, "ids": lowering.place(ids)},
        writes={"y": lowering.place(y)},
        push={"n_inner": lowering.width(ids), "n_rows": table.n_rows, "n_columns": table.n_columns},
        constants=[table.row_blocks],
        grid=lowering.grid(-(-lowering.rows(y) * lowering.width(ids) * quarters // 128)),
    )


def _claims_table(node: Node, limits: Limits) -> bool:
    weight = node.weight("weight")
    return weight.type in FORMATS if len(weight.shape) > 1 else weight.type.name == "F32"


def _get_rows(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    _each(lowering, "rows.get", 256, node, {"x": x, "ids": ids}, n_inner=1, width=lowering.width(x))


def _ngram_rows(lowering: Lowering, node: Node) -> None:
    (tokens,) = node.operands()
    multipliers, sizes, offsets = (node.attrs[name] for name in ("multipliers", "sizes", "offsets"))

    def numbers() -> NDArray[np.uint32]:
        words = np.array(multipliers, "<u8").view("<u4")
        return np.concatenate([words, np.array(sizes + offsets, np.uint32)])

    lowering.dispatch(
        "ngram_rows",
        count=tokens,
        reads={
            "tokens": lowering.place(tokens),
            "numbers": lowering.constant(("ngram rows", multipliers, sizes, offsets), numbers),
        },
        writes={"y": lowering.place(node.output)},
        push={"n_tokens": int(tokens.shape[-1]), "n_heads": len(sizes)},
        grid=lowering.grid(-(-lowering.rows(tokens) * len(sizes) // 64)),
    )


def _slice(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, stop = node.attrs["start"], node.attrs["stop"]
    if inner(x) == 1 and lowering.view(node.output, x, start):
        return
    sizes = {"n_inner": inner(x), "width": stop - start, "x_width": int(x.shape[-1])}
    _each(lowering, "rows.slice", 256, node, {"x": x}, **sizes, start=start)


def _concat(lowering: Lowering, node: Node) -> None:
    x, y = node.operands()
    sizes = {"n_inner": inner(x), "width": int(node.output.shape[-1]), "x_width": int(x.shape[-1])}
    _each(lowering, "rows.concat", 256, node, {"x": x, "y": y}, **sizes, y_inner=inner(y))


def _concatenates(node: Node, limits: Limits) -> bool:
    x, y = node.operands()
    return x.shape[0] == y.shape[0] and inner(y) in (1, inner(x))


def _gather(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    sizes = {"n_inner": inner(ids), "width": int(ids.shape[-1]), "x_width": int(x.shape[-1])}
    _each(lowering, "gather", 64, node, {"x": x, "ids": ids}, **sizes)


def _sum(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = node.attrs["axis"]
    n = int(x.shape[axis])
    n_inner = math.prod(fixed(x.shape[len(x.shape) + axis + 1 :]))
    together = n >= MANY_SUMMED
    n_sums = lowering.rows(x) * (lowering.width(x) // n)
    lowering.dispatch(
        "sum",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": lowering.place(node.output)},
        push={"n_outer": lowering.width(x) // n // n_inner, "n": n, "n_inner": n_inner},
        constants=[together],
        grid=lowering.grid(n_sums if together else -(-n_sums // 64)),
    )


def _softmax(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(lowering, "softmax", node, x)


def _sinkhorn(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    n = int(x.shape[-1])
    n_matrices = lowering.width(x) // (n * n)
    lowering.dispatch(
        "sinkhorn",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": lowering.place(node.output)},
        push={"n_matrices": n_matrices, "n_iterations": node.attrs["n_iterations"], "eps": node.attrs["eps"]},
        constants=[n],
        grid=lowering.grid(-(-lowering.rows(x) * n_matrices // 64)),
    )


def _hadamard(lowering: Lowering, node: Node) -> None:
    (x,), size = node.operands(), int(node.attrs["size"])
    n_inner = lowering.width(x) // size
    lowering.dispatch(
        "hadamard",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": lowering.place(node.output)},
        push={"n_inner": n_inner},
        constants=[local_size(size), size],
        grid=lowering.grid(lowering.rows(x) * n_inner),
    )


def _fits_shared(node: Node, limits: Limits) -> bool:
    return int(node.attrs["size"]) <= MOST_SHARED


def _fits_registers(node: Node, limits: Limits) -> bool:
    return int(node.output.shape[-1]) <= MOST_BALANCED


def _top_k(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    _each_row(lowering, "top_k", node, x, k=node.attrs["k"])


def _each_row(lowering: Lowering, kernel: str, node: Node, x: Tensor, **push: int) -> None:
    """Append a kernel with one workgroup per row of the last axis; the result is its last place."""
    width = int(x.shape[-1])
    lowering.dispatch(
        kernel,
        count=x,
        reads={"x": lowering.place(x)},
        writes={interface(kernel).places[-1]: lowering.place(node.output)},
        push={"n_inner": inner(x), "width": width, **push},
        constants=[local_size(width)],
        grid=lowering.grid(lowering.rows(x) * inner(x)),
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
    "hadamard": Rule(_hadamard, _fits_shared),
    "sinkhorn": Rule(_sinkhorn, _fits_registers),
    "top_k": Rule(_top_k),
}
