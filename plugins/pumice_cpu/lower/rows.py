"""Rules for selections, arrangements and sums of rows."""

from __future__ import annotations

import numpy as np

from pumice.plugin import Tensor
from pumice.plugin.unstable import Limits, Node, row_size
from pumice_cpu.lower.norms import n_rows
from pumice_cpu.lower.rule import Lowering, Rule


def _get_rows(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    lowering.add(
        "rows.pick",
        count=lowering.count_address(ids),
        x=lowering.address(x),
        ids=lowering.address(ids),
        y=lowering.address(node.output),
        n_ids=row_size(ids.shape),
        width=row_size(x.shape),
    )


def _ngram_rows(lowering: Lowering, node: Node) -> None:
    (tokens,) = node.operands()
    numbers = {
        name: lowering.hold(np.array(node.attrs[name], np.uint64)) for name in ("multipliers", "sizes", "offsets")
    }
    n_tokens = int(tokens.shape[-1])
    lowering.add(
        "rows.ngram_rows",
        count=lowering.count_address(tokens),
        tokens=lowering.address(tokens),
        **numbers,
        y=lowering.address(node.output),
        n_tokens=n_tokens,
        n_each=int(node.output.shape[-1]) // (n_tokens - 1),
    )


def _gather(lowering: Lowering, node: Node) -> None:
    x, ids = node.operands()
    lowering.add(
        "rows.gather",
        count=lowering.count_address(x),
        x=lowering.address(x),
        ids=lowering.address(ids),
        y=lowering.address(node.output),
        n_rows=n_rows(x),
        n_ids=int(ids.shape[-1]),
        width=int(x.shape[-1]),
    )


def _top_k(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    lowering.add(
        "rows.top_k",
        count=lowering.count_address(x),
        x=lowering.address(x),
        y=lowering.address(node.output),
        n_rows=n_rows(x),
        width=int(x.shape[-1]),
        k=node.attrs["k"],
    )


def _sum(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    axis = len(x.shape) + node.attrs["axis"]
    before, after = _size(x, 1, axis), _size(x, axis + 1, len(x.shape))
    places = {
        "count": lowering.count_address(x),
        "x": lowering.address(x),
        "y": lowering.address(node.output),
        "n_rows": before,
    }
    if after == 1:
        lowering.add("rows.sum_last", **places, width=int(x.shape[axis]))
    else:
        lowering.add("rows.sum_rows", **places, n_added=int(x.shape[axis]), width=after)


def _slice(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    start, stop, width = node.attrs["start"], node.attrs["stop"], int(x.shape[-1])
    lowering.add(
        "rows.copy",
        count=lowering.count_address(x),
        x=lowering.address(x) + 4 * start,
        y=lowering.address(node.output),
        n_rows=n_rows(x),
        repeat=1,
        width=stop - start,
        x_stride=width,
        y_stride=stop - start,
    )


def _concat(lowering: Lowering, node: Node) -> None:
    to, width = lowering.address(node.output), int(node.output.shape[-1])
    for part in node.operands():
        lowering.add(
            "rows.copy",
            count=lowering.count_address(node.output),
            x=lowering.address(part),
            y=to,
            n_rows=n_rows(node.output),
            repeat=n_rows(node.output) // n_rows(part),
            width=int(part.shape[-1]),
            x_stride=int(part.shape[-1]),
            y_stride=width,
        )
        to += 4 * int(part.shape[-1])


def _rows_repeat_in_place(node: Node, limits: Limits) -> bool:
    """Return True if each row of the second part is used several times in succession: its axes of 1 come last."""
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
