"""Rules for positions. Frequencies are constants; the angles of a step are computed once for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Input, Limits, Node, Tensor
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _claims_rope(node: Node, limits: Limits) -> bool:
    return len(node.inputs["x"].shape) == 3 and not node.attrs["axes"]


def _rope(at: Lowering, node: Node) -> None:
    x = node.inputs["x"]
    _, n_heads, width = x.shape
    cosines, sines = _angles(at, node.inputs["positions"], node.attrs["freqs"], node.attrs["magnitude"])
    at.add(
        f"rope.rotate:{'neox' if node.attrs['neox'] else 'normal'}",
        count=at.count_address(x),
        x=at.address(x),
        y=at.address(node.output),
        cosines=cosines,
        sines=sines,
        n_heads=int(n_heads),
        n_pairs=len(node.attrs["freqs"]),
        width=int(width),
    )


def _angles(at: Lowering, positions: Tensor, freqs: tuple[float, ...], magnitude: float) -> tuple[int, int]:
    """Addresses of cosines and sines ``[n_tokens, n_rot / 2]``; the first node that needs them has them computed."""
    key = f"angles of {positions.name} {magnitude} {freqs}"
    size = 4 * at.max_rows * len(freqs)
    cosines, sines = at.scratch_memory(f"cosine {key}", size), at.scratch_memory(f"sine {key}", size)
    if key not in at.computed:
        at.computed.add(key)
        at.add(
            "rope.angles",
            count=at.count_address(positions),
            positions=at.address(positions),
            frequencies=at.hold(np.array(freqs)),
            cosines=cosines,
            sines=sines,
            n_pairs=len(freqs),
            magnitude=float_bits(magnitude),
        )
    return cosines, sines


def _position_scale(at: Lowering, node: Node) -> None:
    (positions,) = node.operands()
    length, beta, offset = node.attrs["length"], node.attrs["beta"], node.attrs["offset"]
    name = positions.name

    def compute(inputs: Mapping[str, NDArray[Any]]) -> None:
        values = inputs[name]
        np.copyto(at.view(node.output, len(values)), 1 + beta * np.log1p((values + offset) // length))

    at.before.append(compute)


RULES = {
    "rope": Rule(_rope, _claims_rope),
    "position_scale": Rule(_position_scale, lambda node, limits: isinstance(node.inputs["positions"], Input)),
}
