"""Rules for positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Node, Weight, rope_frequencies, rope_magnitude
from pumice_vulkan.lower.rule import Lowering, Rule


def _rope(at: Lowering, node: Node) -> None:
    x, positions, _ = node.inputs
    assert x is not None
    assert positions is not None
    n_head, dim, n_rot = math.prod(int(d) for d in x.shape[1:-1]), int(x.shape[-1]), node.attrs["n_rot"]
    at.dispatch(
        "rope",
        count=x,
        reads=[at.place(x), at.place(positions), turns(at, node)],
        writes=[at.place(node.output)],
        push=[n_head, dim, n_rot, *pairs(node), magnitude(node)],
        grid=at.grid(-(-at.rows(x) * n_head * ((dim + 1) // 2) // 64)),
    )


def pairs(node: Node) -> tuple[int, int]:
    """How far it is from pair to pair, and within one."""
    return (1, node.attrs["n_rot"] // 2) if node.attrs["neox"] else (2, 1)


def magnitude(node: Node) -> float:
    attrs = node.attrs
    return float(rope_magnitude(attrs["attn_factor"], attrs["freq_scale"], attrs["ext_factor"]))


def turns(at: Lowering, node: Node) -> Any:
    """The table of ``shaders/rope_angle.glsl``: of each pair the turns a position, as a 64-bit fraction."""
    factors = node.inputs[2]
    assert factors is None or isinstance(factors, Weight)
    layout = ("rope", tuple(sorted(node.attrs.items())))

    def make() -> NDArray[np.uint32]:
        names = ("n_rot", "freq_base", "freq_scale", "ext_factor", "beta_fast", "beta_slow", "n_ctx_orig")
        scaling = {name: node.attrs[name] for name in names}
        radians = rope_frequencies(None if factors is None else factors.dequantize(), **scaling)
        fraction = radians / (2 * math.pi) % 1.0 * 2.0**32
        high = np.floor(fraction)
        low = np.floor((fraction - high) * 2.0**32)
        return np.stack([high, low], axis=1).astype(np.uint64).astype(np.uint32)

    return at.constant(layout, make) if factors is None else at.upload(factors, layout, lambda: [make()])[0]


def _position_scale(at: Lowering, node: Node) -> None:
    (positions,) = node.operands()
    at.dispatch(
        "position_scale",
        count=positions,
        reads=[at.place(positions)],
        writes=[at.place(node.output)],
        push=[node.attrs["length"], float(node.attrs["beta"])],
        grid=at.grid(-(-at.rows(positions) // 64)),
    )


RULES = {"rope": Rule(_rope), "position_scale": Rule(_position_scale)}
