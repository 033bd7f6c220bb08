"""Rules for positions. Frequencies are constants; the angles of a step are computed once for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Input, Node, Tensor, Weight, rope_frequencies, rope_magnitude
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _claims_rope(node: Node) -> bool:
    x, _, factors = node.inputs
    assert x is not None
    return len(x.shape) == 3 and (factors is None or isinstance(factors, Weight))


def _rope(at: Lowering, node: Node) -> None:
    x, positions, factors = node.inputs
    assert x is not None
    assert positions is not None
    _, n_heads, width = x.shape
    cosines, sines = _angles(at, positions, factors, node.attrs)
    at.add(
        f"rope.rotate:{'neox' if node.attrs['neox'] else 'normal'}",
        count=at.count(x),
        x=at.address(x),
        y=at.address(node.output),
        cosines=cosines,
        sines=sines,
        n_heads=int(n_heads),
        n_pairs=node.attrs["n_rot"] // 2,
        width=int(width),
    )


def _angles(at: Lowering, positions: Tensor, factors: Tensor | None, attrs: Mapping[str, Any]) -> tuple[int, int]:
    """Addresses of cosines and sines ``[n_tokens, n_rot / 2]``; the first node that needs them has them computed."""
    scaling = {key: value for key, value in attrs.items() if key not in ("neox", "attn_factor")}
    values = factors.dequantize() if isinstance(factors, Weight) else None
    frequencies = rope_frequencies(values, **scaling)
    magnitude = rope_magnitude(attrs["attn_factor"], attrs["freq_scale"], attrs["ext_factor"])
    key = f"angles of {positions.name} {magnitude} {frequencies.tobytes().hex()}"
    size = 4 * at.limits.n_batch * len(frequencies)
    cosines, sines = at.scratch_memory(f"cosine {key}", size), at.scratch_memory(f"sine {key}", size)
    if key not in at.computed:
        at.computed.add(key)
        at.add(
            "rope.angles",
            count=at.count(positions),
            positions=at.address(positions),
            frequencies=at.hold(frequencies),
            cosines=cosines,
            sines=sines,
            n_pairs=len(frequencies),
            magnitude=float_bits(magnitude),
        )
    return cosines, sines


def _position_scale(at: Lowering, node: Node) -> None:
    (positions,) = node.operands()
    length, beta, name = node.attrs["length"], node.attrs["beta"], positions.name

    def compute(inputs: Mapping[str, NDArray[Any]]) -> None:
        values = inputs[name]
        np.copyto(at.view(node.output, len(values)), 1 + beta * np.log1p(values // length))

    at.before.append(compute)


RULES = {
    "rope": Rule(_rope, _claims_rope),
    "position_scale": Rule(_position_scale, lambda node: isinstance(node.inputs[0], Input)),
}
