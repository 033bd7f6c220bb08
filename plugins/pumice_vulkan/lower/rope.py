"""Rules for positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import fixed
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.lower.rule import Lowering, Rule


def _rope(lowering: Lowering, node: Node) -> None:
    (x, positions), axes = node.operands(), node.attrs["axes"]
    n_head, dim, n_rot = math.prod(fixed(x.shape[1:-1])), int(x.shape[-1]), 2 * len(node.attrs["freqs"])
    n_axes = int(positions.shape[1]) if axes else 1
    of_pairs = lowering.constant(("axes", axes), lambda: np.array(axes, np.uint32)) if axes else turns(lowering, node)
    first_step, second_distance = pairs(node)
    lowering.dispatch(
        "rope",
        count=x,
        reads={
            "x": lowering.place(x),
            "positions": lowering.place(positions),
            "turns": turns(lowering, node),
            "axes": of_pairs,
        },
        writes={"y": lowering.place(node.output)},
        push={
            "n_head": n_head,
            "dim": dim,
            "n_rot": n_rot,
            "first_step": first_step,
            "second_distance": second_distance,
            "magnitude": node.attrs["magnitude"],
            "n_axes": n_axes,
        },
        grid=lowering.grid(-(-lowering.rows(x) * n_head * ((dim + 1) // 2) // 64)),
    )


def pairs(node: Node) -> tuple[int, int]:
    """Return the distance from pair to pair, and within a pair."""
    return (1, len(node.attrs["freqs"])) if node.attrs["neox"] else (2, 1)


def turns(lowering: Lowering, *nodes: Node) -> Any:
    """Return the table of ``shaders/rope_angle.glsl``: each pair's turns per position as a 64-bit fraction.

    That of several nodes has their pairs one behind the other.
    """
    freqs = tuple(freq for node in nodes for freq in node.attrs["freqs"])

    def make() -> NDArray[np.uint32]:
        fraction = np.array(freqs) / (2 * math.pi) % 1.0 * 2.0**32
        high = np.floor(fraction)
        low = np.floor((fraction - high) * 2.0**32)
        return np.stack([high, low], axis=1).astype(np.uint64).astype(np.uint32)

    return lowering.constant(("rope", freqs), make)


def _position_scale(lowering: Lowering, node: Node) -> None:
    (positions,) = node.operands()
    lowering.dispatch(
        "position_scale",
        count=positions,
        reads={"positions": lowering.place(positions)},
        writes={"y": lowering.place(node.output)},
        push={name: node.attrs[name] for name in ("length", "beta", "offset")},
        grid=lowering.grid(-(-lowering.rows(positions) // 64)),
    )


def _is_unsigned(node: Node, limits: Limits) -> bool:
    return int(node.attrs["offset"]) >= 0


RULES = {"rope": Rule(_rope), "position_scale": Rule(_position_scale, _is_unsigned)}
