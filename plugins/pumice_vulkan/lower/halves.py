"""Float16 activations for matrix units: converted once, or stored by the kernel that computes them."""

from __future__ import annotations

from enum import Enum

from pumice.plugin import Tensor
from pumice.plugin.unstable import Node
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import LANES_UNIT, X_UNIT

MOST_QUADS = 4096  # maximum groups of four values per row in shaders/norm_half.comp
NORM_THREADS = 256
LANE_ORDER = 0  # in place of X_UNIT, as in shaders/halves.glsl
SUM = "latest sum of experts"  # key of its node, result, residual and dispatch
SUM_WITH_NORM = True  # sums of experts and the next norm are one dispatch
_NAMES = ("float16 activations", "more float16 activations")  # scratch memories: one is read while the other is written


class Order(Enum):
    """The order of float16 activations in memory (shaders/halves.glsl)."""

    ROWS = "row by row"
    TILES = "tiles of X_UNIT rows and columns"
    LANES = "as lanes of shaders/matmul_lanes.comp read them"
    LANE_ROWS = "row by row, each with the columns of a lane together"


def halves(lowering: Lowering, x: Tensor, order: Order = Order.ROWS) -> BufferSlice:
    """Convert the rows of x to float16."""
    held = lowering.root(x), order
    name_in_use = next((name for name in _NAMES if lowering.remembered.get(name) == held), None)
    if name_in_use:
        return lowering.scratch(name_in_use, _n_bytes(lowering, x))
    n_quads, place = lowering.width(x) // 4, new_halves(lowering, x, order)
    lowering.dispatch(
        "half",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": place},
        push={"n_quads": n_quads},
        constants=tiles(lowering, x, order),
        grid=(-(-n_quads // 128), lowering.rows(x), 1),
    )
    return place


def new_halves(lowering: Lowering, x: Tensor, order: Order = Order.ROWS) -> BufferSlice:
    """Return a place for the next dispatch's float16 result, different from that of the latest activation."""
    lowering.remembered["turn"] = 1 - lowering.remembered.get("turn", 1)
    name = _NAMES[lowering.remembered["turn"]]
    lowering.remembered[name] = lowering.root(x), order
    return lowering.scratch(name, _n_bytes(lowering, x))


def tiles(lowering: Lowering, x: Tensor, order: Order) -> list[int]:
    """Return two specialization constants: the tiles per column of tiles, or 0, and the rows and columns of a tile."""
    if order in (Order.LANES, Order.LANE_ROWS):
        return [-(-lowering.rows(x) // LANES_UNIT) if order is Order.LANES else 0, LANE_ORDER]
    return [-(-lowering.rows(x) // X_UNIT) if order is Order.TILES else 0, X_UNIT]


def normed_halves(lowering: Lowering, norm: Node, order: Order) -> bool:
    """Compute an RMS norm used only by products on matrix units; return False if the kernel does not support it."""
    x, weight = norm.operands()
    n_quads = lowering.width(x) // 4
    if lowering.width(x) % 4 or n_quads > MOST_QUADS:
        return False
    kernel, reads, writes, push = "norm_half", {"x": x}, dict[str, Tensor](), dict[str, int]()
    node, total, residual, index = lowering.remembered.get(SUM, (None, None, None, 0))
    if SUM_WITH_NORM and residual is not None and total is x and index == len(lowering.dispatches) - 1:
        del lowering.dispatches[index]
        experts, shares = node.operands()
        kernel, reads, writes = "expert_sum_norm", {"x": experts, "shares": shares, "residual": residual}, {"sum": x}
        push = {"n_used": int(shares.shape[-1])}
    lowering.dispatch(
        kernel,
        count=x,
        reads={name: lowering.place(tensor) for name, tensor in {**reads, "weight": weight}.items()},
        writes={
            "y": new_halves(lowering, norm.output, order),
            **{name: lowering.place(tensor) for name, tensor in writes.items()},
        },
        push={"n_quads": n_quads, "eps": norm.attrs["eps"], **push},
        constants=[NORM_THREADS, -(-n_quads // NORM_THREADS), *tiles(lowering, norm.output, order)],
        grid=(lowering.rows(x), 1, 1),
    )
    return True


def _n_bytes(lowering: Lowering, x: Tensor) -> int:
    """Return the bytes of whole tiles, since all their rows are read."""
    unit = max(X_UNIT, LANES_UNIT)
    return 2 * -(-lowering.rows(x) // unit) * unit * lowering.width(x)
