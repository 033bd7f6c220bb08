"""Rules for products with weight matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pumice.plugin import Node, Tensor, Weight
from pumice_cpu.formats import ROWS
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.packed import can_pack


@dataclass(frozen=True)
class Quantized:
    """Addresses of an activation's int8 codes, scales and sums."""

    codes: int
    scales: int
    sums: int


def quantized(at: Lowering, x: Tensor) -> Quantized:
    """The activation ``x`` in int8 blocks. What was quantized last is used again: q, k and v share it.

    Rows are padded to what a matrix multiplies at once; the padding is left as it is.
    """
    n_columns = int(x.shape[-1])
    n_rows = max(at.limits.n_batch, at.limits.n_outputs) + current().tokens
    codes = at.scratch_memory(f"codes {n_columns}", n_rows * n_columns)
    scales = at.scratch_memory(f"scales {n_columns}", n_rows * n_columns // 8)
    sums = at.scratch_memory(f"sums {n_columns}", n_rows * n_columns // 4)
    if at.quantized is not x:
        at.add(
            "quantize.quantize",
            count=at.count(x),
            x=at.address(x),
            codes=codes,
            scales=scales,
            sums=sums,
            n_blocks=n_columns // 32,
        )
        at.quantized = x
    return Quantized(codes, scales, sums)


def _claims_linear(node: Node) -> bool:
    x, weight, _ = node.inputs
    return isinstance(weight, Weight) and x is not None and len(x.shape) == 2 and can_pack(weight.type, int(x.shape[1]))


def _linear(at: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs
    assert x is not None
    assert isinstance(weight, Weight)
    packed, q = at.pack(weight), quantized(at, x)
    at.add(
        f"linear.matmul:{packed.format.name}:{1 if at.is_single(x) else current().tokens}",
        count=at.count(x),
        codes=packed.codes.ctypes.data,
        scales=packed.scales.ctypes.data,
        table=packed.table.ctypes.data,
        bias=_padded_bias(at, bias),
        x=q.codes,
        x_scales=q.scales,
        x_sums=q.sums,
        y=at.address(node.output),
        n_rows=packed.n_rows,
        n_blocks=packed.n_blocks,
        scale_stride=packed.scale_stride,
    )


def _padded_bias(at: Lowering, bias: Tensor | None) -> int:
    """Address of a bias, filled up to whole tiles; 0 without one."""
    if not isinstance(bias, Weight):
        return 0
    values = bias.dequantize()
    return at.hold(np.concatenate([values, np.zeros(-len(values) % ROWS, np.float32)]))


RULES = {"linear": Rule(_linear, _claims_linear)}
