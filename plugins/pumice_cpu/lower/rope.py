"""Rules for positions. Frequencies are constants; the angles of a step are computed once for all layers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import Input, Limits, Node
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits

ANGLES = ("freqs", "magnitude", "axes")  # attributes that angles depend on


def _claims_rope(node: Node, limits: Limits) -> bool:
    by_one_position = not node.attrs["axes"] or isinstance(node.inputs["positions"], Input)
    return len(node.inputs["x"].shape) == 3 and by_one_position


def _rope(lowering: Lowering, node: Node) -> None:
    x = node.inputs["x"]
    _, n_heads, width = x.shape
    cosines, sines = _angles(lowering, node)
    lowering.add_mapped(
        f"rope.rotate:{'neox' if node.attrs['neox'] else 'normal'}",
        x,
        node.output,
        cosines=cosines,
        sines=sines,
        n_heads=int(n_heads),
        n_pairs=len(node.attrs["freqs"]),
        width=int(width),
    )


def _angles(lowering: Lowering, node: Node) -> tuple[int, int]:
    """Return addresses of cosines and sines ``[n_tokens, n_rot / 2]``; the first node to need them computes them."""
    positions, freqs, magnitude, axes = node.inputs["positions"], *(node.attrs[name] for name in ANGLES)
    key = f"angles of {positions.name} {magnitude} {freqs} {axes}"
    size = 4 * lowering.max_rows * len(freqs)
    cosines, sines = lowering.scratch_memory(f"cosine {key}", size), lowering.scratch_memory(f"sine {key}", size)
    if key in lowering.computed:
        return cosines, sines
    lowering.computed.add(key)
    if axes:
        lowering.before.append(functools.partial(_angles_by_axes, lowering, node, key))
    else:
        lowering.add(
            "rope.angles",
            positions,
            positions=positions,
            frequencies=np.array(freqs),
            cosines=cosines,
            sines=sines,
            n_pairs=len(freqs),
            magnitude=float_bits(magnitude),
        )
    return cosines, sines


def _angles_by_axes(lowering: Lowering, node: Node, key: str, inputs: Mapping[str, NDArray[Any]]) -> None:
    """M-RoPE: each pair rotates by the position in its axis."""
    freqs, magnitude, axes = (node.attrs[name] for name in ANGLES)
    angles = inputs[node.inputs["positions"].name][:, list(axes)] * np.array(freqs)
    for name, values in (("cosine", np.cos(angles)), ("sine", np.sin(angles))):
        room = lowering.memory.scratch[f"{name} {key}"].view(np.float32)[: angles.size].reshape(angles.shape)
        np.copyto(room, values * magnitude, casting="same_kind")


def _position_scale(lowering: Lowering, node: Node) -> None:
    (positions,) = node.operands()
    length, beta, offset = node.attrs["length"], node.attrs["beta"], node.attrs["offset"]
    name = positions.name
    lowering.add_computed(node.output, lambda inputs: 1 + beta * np.log1p((inputs[name] + offset) // length))


def kernels() -> Iterator[str]:
    yield from (f"rope.rotate:{order}" for order in ("neox", "normal"))


RULES = {
    "rope": Rule(_rope, _claims_rope),
    "position_scale": Rule(_position_scale, lambda node, limits: isinstance(node.inputs["positions"], Input)),
}
