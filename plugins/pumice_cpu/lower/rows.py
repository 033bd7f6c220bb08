"""Rules for choosing, arranging and adding up rows."""

from __future__ import annotations

import numpy as np

from pumice.plugin import Limits, Node, Tensor, row_size
from pumice_cpu.lower.norms import n_rows
from pumice_cpu.lower.rule import Lowering, Rule


def _get_rows(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    at.add(
        "rows.pick",
        count=at.count_address(ids),
        x=at.address(x),
        ids=at.address(ids),
        y=at.address(node.output),
        n_ids=row_size(ids.shape),
        width=row_size(x.shape),
    )


def _ngram_rows(at: Lowering, node: Node) -> None:
    (tokens,) = node.operands()
    numbers = {name: at.hold(np.array(node.attrs[name], np.uint64)) for name in ("multipliers", "sizes", "offsets")}
    n_tokens = int(tokens.shape[-1])
    at.add(
        "rows.ngram_rows",
        count=at.count_address(tokens),
        tokens=at.address(tokens),
        **numbers,
        y=at.address(node.output),
        n_tokens=n_tokens,
        n_each=int(node.output.shape[-1]) // (n_tokens - 1),
    )


def _gather(at: Lowering, node: Node) -> None:
    x, ids = node.operands()
    at.add(
        "rows.gather",
        count=at.count_address(x),
        x=at.address(x),
        ids=at.address(ids),
        y=at.address(node.output),
        n_rows=n_rows(x),
        n_ids=int(ids.shape[-1]),
        width=int(x.shape[-1]),
    )


def _top_k(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    at.add(
        "rows.top_k",
        count=at.count_address(x),
        x=at.address(x),
        y=at.address(node.output),
        n_rows=n_rows(x),
        width=int(x.shape[-1]),
        k=node.attrs["k"],
    )


def _sum(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = len(x.shape) + node.attrs["axis"]
    before, after = _size(x, 1, axis), _size(x, axis + 1, len(x.shape))
    places = {"count": at.count_address(x), "x": at.address(x), "y": at.address(node.output), "n_rows": before}
    if after == 1:
        at.add("rows.sum_last", **places, width=int(x.shape[axis]))
    else:
        at.add("rows.sum_rows", **places, n_added=int(x.shape[axis]), width=after)


def _slice(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, stop, width = node.attrs["start"], node.attrs["stop"], int(x.shape[-1])
    at.add(
        "rows.copy",
        count=at.count_address(x),
        x=at.address(x) + 4 * start,
        y=at.address(node.output),
        n_rows=n_rows(x),
        repeat=1,
        width=stop - start,
        x_stride=width,
        y_stride=stop - start,
    )


def _concat(at: Lowering, node: Node) -> None:
    to, width = at.address(node.output), int(node.output.shape[-1])
    for part in node.operands():
        at.add(
            "rows.copy",
            count=at.count_address(node.output),
            x=at.address(part),
            y=to,
            n_rows=n_rows(node.output),
            repeat=n_rows(node.output) // n_rows(part),
            width=int(part.shape[-1]),
            x_stride=int(part.shape[-1]),
            y_stride=width,
        )
        to += 4 * int(part.shape[-1])


def _rows_repeat_in_place(node: Node, limits: Limits) -> bool:
    """Whether each row of the second part is used a number of times in a row: its axes of 1 come last."""
    x, y = node.operands()
    dims = list(y.shape[:-1])
    while len(dims) > 1 and dims[-1] == 1:
        dims.pop()
    return list(x.shape[: len(dims)]) == dims


def _size(x: Tensor, start: int, stop: int) -> int:
    size = 1
    for dim in x.shape[start:stop]:
        size *= int(dim)
    return size


RULES = {
    "get_rows": Rule(_get_rows),
    "ngram_rows": Rule(_ngram_rows),
    "gather": Rule(_gather),
    "top_k": Rule(_top_k),
    "sum": Rule(_sum),
    "slice": Rule(_slice),
    "concat": Rule(_concat, _rows_repeat_in_place),
}
