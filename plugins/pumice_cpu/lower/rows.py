"""Rules for selections, arrangements and sums of rows."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import Tensor, fixed
from pumice.plugin.unstable import Limits, Node, row_size
from pumice_cpu.lower.norms import n_rows
from pumice_cpu.lower.rule import Lowering, Rule


def _get_rows(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    pick_rows(lowering, x, ids, node.output)


def pick_rows(lowering: Lowering, x: Tensor, ids: Tensor, y: Tensor) -> None:
    """Copy the rows of ``x`` that ``ids`` name to ``y``."""
    lowering.add("rows.pick", ids, x=x, ids=ids, y=y, n_ids=row_size(ids.shape), width=row_size(x.shape))


def _ngram_rows(lowering: Lowering, node: Node) -> None:
    (tokens,) = node.operands()
    numbers = {name: np.array(node.attrs[name], np.uint64) for name in ("multipliers", "sizes", "offsets")}
    n_tokens = int(tokens.shape[-1])
    sizes = {"n_tokens": n_tokens, "n_each": int(node.output.shape[-1]) // (n_tokens - 1)}
    lowering.add("rows.ngram_rows", tokens, tokens=tokens, y=node.output, **sizes, **numbers)


def _gather(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    sizes = {"n_rows": n_rows(x), "n_ids": int(ids.shape[-1]), "width": int(x.shape[-1])}
    lowering.add("rows.gather", x, x=x, ids=ids, y=node.output, **sizes)


def _top_k(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    top_k(lowering, x, node.output, node.attrs["k"])


def top_k(lowering: Lowering, x: Tensor, y: Tensor, k: int) -> None:
    """Store the indices of the ``k`` greatest values of each row of ``x`` in ``y``."""
    lowering.add("rows.top_k", x, x=x, y=y, n_rows=n_rows(x), width=int(x.shape[-1]), k=k)


def _sum(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = len(x.shape) + node.attrs["axis"]
    dims = fixed(x.shape[1:])
    before, added, after = math.prod(dims[: axis - 1]), dims[axis - 1], math.prod(dims[axis:])
    if after == 1:
        lowering.add("rows.sum_last", x, x=x, y=node.output, n_rows=before, width=added)
    else:
        lowering.add("rows.sum_rows", x, x=x, y=node.output, n_rows=before, n_added=added, width=after)


def _slice(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, width = node.attrs["start"], node.attrs["stop"] - node.attrs["start"]
    sizes = {"n_rows": n_rows(x), "repeat": 1, "width": width, "x_stride": int(x.shape[-1]), "y_stride": width}
    lowering.add("rows.copy", x, x=lowering.address(x) + 4 * start, y=node.output, **sizes)


def _concat(lowering: Lowering, node: Node) -> None:
    y, to = node.output, lowering.address(node.output)
    for part in node.operands():
        width, repeat = int(part.shape[-1]), n_rows(y) // n_rows(part)
        sizes = {"n_rows": n_rows(y), "repeat": repeat, "width": width, "x_stride": width, "y_stride": int(y.shape[-1])}
        lowering.add("rows.copy", y, x=part, y=to, **sizes)
        to += 4 * width


def _rows_repeat_in_place(node: Node, limits: Limits) -> bool:
    """Return True if each row of the second part is used several times in succession: its axes of 1 come last."""
    x, y = node.operands()
    dims = list(y.shape[:-1])
    while len(dims) > 1 and dims[-1] == 1:
        dims.pop()
    return list(x.shape[: len(dims)]) == dims


RULES = {
    "get_rows": Rule(_get_rows),
    "ngram_rows": Rule(_ngram_rows),
    "gather": Rule(_gather),
    "top_k": Rule(_top_k),
    "sum": Rule(_sum),
    "slice": Rule(_slice),
    "concat": Rule(_concat, _rows_repeat_in_place),
}
