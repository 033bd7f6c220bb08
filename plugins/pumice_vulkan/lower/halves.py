"""Activations in float16, as matrix units take them: made once, or left by the kernel that computes them."""

from __future__ import annotations

from pumice.plugin import Node, Tensor
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import Place
from pumice_vulkan.probe import SHAPE

MOST_QUADS = 4096  # of a row that shaders/norm_half.comp takes
NORM_THREADS = 256
UNIT = SHAPE.m  # rows and columns of what matrix units multiply
_NAMES = ("float16 activations", "more float16 activations")  # scratch memory: one is read while the other is written


def halves(at: Lowering, x: Tensor, tiled: bool = False) -> Place:
    """The rows of x in float16, one behind the other or in tiles (shaders/halves.glsl)."""
    held = at.root(x), tiled
    found = next((name for name in _NAMES if at.remembered.get(name) == held), None)
    if found:
        return at.scratch(found, _n_bytes(at, x))
    n_quads, place = at.width(x) // 4, new_halves(at, x, tiled)
    at.dispatch(
        "half",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": place},
        push={"n_quads": n_quads},
        constants=tiles(at, x, tiled),
        grid=(-(-n_quads // 128), at.rows(x), 1),
    )
    return place


def new_halves(at: Lowering, x: Tensor, tiled: bool = False) -> Place:
    """Where the next dispatch leaves x in float16; not where it finds another activation that was made last."""
    at.remembered["turn"] = 1 - at.remembered.get("turn", 1)
    name = _NAMES[at.remembered["turn"]]
    at.remembered[name] = at.root(x), tiled
    return at.scratch(name, _n_bytes(at, x))


def tiles(at: Lowering, x: Tensor, tiled: bool) -> list[int]:
    """Two specialization constants: the tiles of the same columns, or 0, and the rows and columns of one."""
    return [-(-at.rows(x) // UNIT) if tiled else 0, UNIT]


def normed_halves(at: Lowering, norm: Node, tiled: bool) -> bool:
    """An RMS norm whose result only products on matrix units use; False where the kernel cannot do it."""
    x, weight = norm.operands()
    n_quads = at.width(x) // 4
    if at.width(x) % 4 or n_quads > MOST_QUADS:
        return False
    at.dispatch(
        "norm_half",
        count=x,
        reads={"x": at.place(x), "weight": at.place(weight)},
        writes={"y": new_halves(at, norm.output, tiled)},
        push={"n_quads": n_quads, "eps": norm.attrs["eps"]},
        constants=[NORM_THREADS, -(-n_quads // NORM_THREADS), *tiles(at, norm.output, tiled)],
        grid=(at.rows(x), 1, 1),
    )
    return True


def _n_bytes(at: Lowering, x: Tensor) -> int:
    """Of whole tiles, all of whose rows are read."""
    return 2 * -(-at.rows(x) // UNIT) * UNIT * at.width(x)
