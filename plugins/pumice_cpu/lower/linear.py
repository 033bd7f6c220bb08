"""Rules for products with weight matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import Limits, Node, row_size
from pumice_cpu.formats import BY_NAME, UNPACKED, Format
from pumice_cpu.isa import current
from pumice_cpu.lower import linear_float as floats
from pumice_cpu.lower import linear_rare, tiles
from pumice_cpu.lower.linear_float import TYPES, linear_float, padded_bias
from pumice_cpu.lower.linear_rare import can_unpack, stored
from pumice_cpu.lower.rule import Argument, Lowering, Rule
from pumice_cpu.lower.tiles import multiply_tiles, round_to_tiles
from pumice_cpu.packed import can_pack


@dataclass(frozen=True)
class Quantized:
    """Addresses of an activation's int8 codes, and of its scales and sums (kernels/quantize.py)."""

    codes: int
    scales: int


def quantized(lowering: Lowering, x: Tensor, format: Format, width: int, count: int = 0) -> Quantized:
    """Quantize the rows of ``x`` to int8 blocks, in groups of ``width``, for weights of this format.

    The latest quantized activation is reused: q, k and v share it. The last group is padded to ``width`` rows, whose
    contents are undefined. ``count``: address of the number of rows, if it is not that of ``x``.
    """
    is_part = count != 0
    count = count or lowering.count_address(x)
    n_columns = int(x.shape[-1])
    offset = quantized_offset(format)
    n_rows = lowering.max_rows + width
    codes = lowering.scratch_memory(f"codes {n_columns}", n_rows * n_columns)
    scales = lowering.scratch_memory(f"scales {n_columns}", n_rows * n_columns // 2)
    key = (x, width, offset, is_part)
    if lowering.quantized != key:
        sizes = {"n_blocks": n_columns // 32, "width": width, "offset": offset}
        lowering.add("quantize.quantize", count=count, x=x, codes=codes, scales=scales, **sizes)
        lowering.quantized = key
    return Quantized(codes, scales)


def quantized_offset(format: Format) -> int:
    """Return the offset that kernels subtract from codes of this format; activations carry sums for it."""
    return current().signed_offset if format.signed else format.offset


def _claims_linear(node: Node, limits: Limits) -> bool:
    x, weight = node.inputs["x"], node.weight("weight")
    if row_size(x.shape) != x.shape[-1]:  # not one row per token
        return False
    type, n_columns = weight.type, int(x.shape[-1])
    return type in TYPES or can_pack(type, n_columns) or can_unpack(type, n_columns)


def _linear(lowering: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    if weight.type in TYPES:
        linear_float(lowering, x, weight, bias, node.output)
    elif can_pack(weight.type, int(x.shape[-1])):
        _linear_packed(lowering, x, weight, bias, node.output)
    else:
        _linear_rare(lowering, x, weight, bias, node.output)


def _linear_packed(lowering: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor) -> None:
    packed, width = lowering.tiles(weight), _width(lowering, x)
    few = many = 0
    if lowering.memory.tiles and width > 1:
        few, many = lowering.split_count(x)
    n_before = len(lowering.table)
    q = quantized(lowering, x, packed.format, width, few)
    if many:
        round_to_tiles(lowering, x, many, alongside=len(lowering.table) > n_before)
    name = packed.format.name
    kernel, count = f"linear.matmul:{name}:{width}", {"count": few or lowering.count_address(x)}
    if width == 1:
        kernel, count = f"linear.matvec:{name}", {}
    matrix: dict[str, Argument] = {
        "scales": packed.scales.ctypes.data,
        "table": packed.table.ctypes.data,
        "bias": padded_bias(bias),
        "n_rows": packed.n_rows,
        "n_blocks": packed.n_blocks,
        "scale_stride": packed.scale_stride,
    }
    codes = packed.codes.ctypes.data
    lowering.add_product(kernel, of=x, into=y, **count, **matrix, codes=codes, x=q.codes, x_scales=q.scales)
    if many:
        multiply_tiles(lowering, x, y, name, many, {"weights": codes, **matrix})


def _linear_rare(lowering: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor) -> None:
    width = _width(lowering, x)
    q = quantized(lowering, x, UNPACKED, width)
    lowering.add_product(
        f"linear_rare.matmul:{weight.type.name.lower()}:{width}",
        of=x,
        into=y,
        count=lowering.count_address(x),
        bias=padded_bias(bias),
        x=q.codes,
        x_scales=q.scales,
        **stored(lowering, weight),
    )


def _width(lowering: Lowering, x: Tensor) -> int:
    """Return the number of activation rows that are multiplied at once."""
    return 1 if lowering.is_single(x) else current().tokens


def kernels() -> Iterator[str]:
    yield from (f"linear.matvec:{name}" for name in BY_NAME)
    yield from (f"linear.matmul:{name}:{current().tokens}" for name in BY_NAME)
    yield from tiles.kernels()
    yield from floats.kernels()
    yield from linear_rare.kernels("matmul")


RULES = {"linear": Rule(_linear, _claims_linear)}
