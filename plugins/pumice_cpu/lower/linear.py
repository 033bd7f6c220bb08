"""Rules for products with weight matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pumice.plugin import Node, Tensor, Weight
from pumice_cpu.formats import ROWS, Format
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.packed import can_pack


@dataclass(frozen=True)
class Quantized:
    """Addresses of an activation's int8 codes, and of its scales and sums (kernels/quantize.py)."""

    codes: int
    scales: int


def quantized(at: Lowering, x: Tensor, format: Format, width: int) -> Quantized:
    """The rows of ``x`` in int8 blocks, in groups of ``width``, for weights of this format.

    What was quantized last is used again: q, k and v share it. The last group is padded to ``width`` rows,
    which are left as they are.
    """
    n_columns = int(x.shape[-1])
    offset = current().signed_offset if format.signed else format.offset
    n_rows = max(at.limits.n_batch, at.limits.n_outputs) + width
    codes = at.scratch_memory(f"codes {n_columns}", n_rows * n_columns)
    scales = at.scratch_memory(f"scales {n_columns}", n_rows * n_columns // 2)
    if at.quantized != (x, width, offset):
        at.add(
            "quantize.quantize",
            count=at.count(x),
            x=at.address(x),
            codes=codes,
            scales=scales,
            n_blocks=n_columns // 32,
            width=width,
            offset=offset,
        )
        at.quantized = (x, width, offset)
    return Quantized(codes, scales)


def _claims_linear(node: Node) -> bool:
    x, weight, _ = node.inputs
    return isinstance(weight, Weight) and x is not None and len(x.shape) == 2 and can_pack(weight.type, int(x.shape[1]))


def _linear(at: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs
    assert x is not None
    assert isinstance(weight, Weight)
    packed = at.pack(weight)
    width = 1 if at.is_single(x) else current().tokens
    q = quantized(at, x, packed.format, width)
    at.add(
        f"linear.matmul:{packed.format.name}:{width}",
        count=at.count(x),
        codes=packed.codes.ctypes.data,
        scales=packed.scales.ctypes.data,
        table=packed.table.ctypes.data,
        bias=_padded_bias(at, bias),
        x=q.codes,
        x_scales=q.scales,
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
