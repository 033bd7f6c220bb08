"""MoE dispatch: rules for products where each row selects one of several matrices, by expert or by head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GGMLType, Tensor, Weight, fixed
from pumice.plugin.unstable import Limits, Node, row_size
from pumice_cpu.formats import BY_NAME, UNPACKED, Format
from pumice_cpu.isa import current
from pumice_cpu.lower import linear_rare
from pumice_cpu.lower.linear import quantized_offset
from pumice_cpu.lower.linear_rare import can_unpack, stored
from pumice_cpu.lower.rule import Argument, Lowering, Rule
from pumice_cpu.packed import can_pack

LANES = 16  # values of a vector
FLOATS = {GGMLType.F32: "f32", GGMLType.F16: "f16", GGMLType.BF16: "bf16"}


@dataclass(frozen=True)
class Grouped:
    """Addresses of the pairs of a token and a matrix, sorted by matrix (kernels/experts.py)."""

    order: int
    matrices: int
    starts: int
    totals: int
    n_rows: int  # maximum length of the order
    name: str


def _claims(node: Node, limits: Limits) -> bool:
    x, weight = node.inputs["x"], node.weight("weight")
    if len(x.shape) > 3 or x.shape[0] != N_TOKENS:
        return False
    n_columns = int(x.shape[-1])
    return weight.type in FLOATS or can_pack(weight.type, n_columns) or can_unpack(weight.type, n_columns)


def _mul_mat_id(lowering: Lowering, node: Node) -> None:
    x, weight, ids = node.operands()
    assert isinstance(weight, Weight)
    n_used = int(ids.shape[-1])
    grouped = _group(lowering, ids.name, ids, n_used, int(weight.shape[0]), _width(lowering, x, weight))
    _multiply(lowering, x, weight, grouped, n_used if len(x.shape) == 2 else 1, node.output)


def _batched_linear(lowering: Lowering, node: Node) -> None:
    """Multiply every token by every matrix, each with a row of its own."""
    x, weight = node.operands()
    assert isinstance(weight, Weight)
    n_heads = int(weight.shape[0])
    ids = np.tile(np.arange(n_heads, dtype=np.int32), lowering.limits.n_batch)
    grouped = _group(lowering, f"{n_heads} heads", ids, n_heads, n_heads, _width(lowering, x, weight))
    _multiply(lowering, x, weight, grouped, 1, node.output)


def _width(lowering: Lowering, x: Tensor, weight: Weight) -> int:
    """Return the number of pairs of one matrix that are multiplied at once."""
    if weight.type in FLOATS:
        return 1 if lowering.takes_one(x) else _float_width()
    return 1 if lowering.is_single(x) else current().tokens


def _float_width() -> int:
    return max(1, current().tokens // 2)


def _group(lowering: Lowering, name: str, ids: Argument, n_used: int, n_matrices: int, width: int) -> Grouped:
    """Group pairs by matrix. Gate, up and down projections share the grouping of the same ids."""
    n_pairs = lowering.limits.n_batch * n_used
    n_rows = n_pairs + min(n_pairs, n_matrices) * (width - 1)
    name = f"order of {name} by {width}"
    order, matrices, starts, places, totals = (
        lowering.scratch_memory(f"{part} {name}", size)
        for part, size in (
            ("pairs", 4 * n_rows),
            ("matrices", 4 * n_matrices),
            ("starts", 4 * n_matrices + 4),
            ("places", 4 * n_matrices),
            ("totals", 16),
        )
    )
    if name not in lowering.computed:
        lowering.computed.add(name)
        lowering.add(
            "experts.group",
            count=lowering.size(N_TOKENS),
            ids=ids,
            order=order,
            matrices=matrices,
            starts=starts,
            places=places,
            totals=totals,
            n_used=n_used,
            n_matrices=n_matrices,
            width=width,
        )
    return Grouped(order, matrices, starts, totals, n_rows, name)


def _multiply(lowering: Lowering, x: Tensor, weight: Weight, grouped: Grouped, per_row: int, output: Tensor) -> None:
    order = {"order": grouped.order, "matrices": grouped.matrices, "starts": grouped.starts, "totals": grouped.totals}
    n_rows, n_columns = fixed(weight.shape[1:])
    width = _width(lowering, x, weight)
    if weight.type in FLOATS:
        name = FLOATS[weight.type]
        n_padded = -(-n_columns // LANES) * LANES
        lowering.add_product(
            f"experts.matvec_float:{name}" if width == 1 else f"experts.matmul_float:{name}:{width}",
            of=x,
            into=output,
            **order,
            weights=_padded_matrices(weight, n_padded),
            per_row=per_row,
            x=x if n_padded == n_columns else _padded_rows(lowering, x, n_padded),
            n_rows=n_rows,
            n_columns=n_padded,
        )
        return
    if can_pack(weight.type, n_columns):
        packed = lowering.tiles(weight)
        activations = _quantized(lowering, x, packed.format, grouped, per_row, width)
        name = packed.format.name
        lowering.add_product(
            f"experts.matvec:{name}" if width == 1 else f"experts.matmul:{name}:{width}",
            of=x,
            into=output,
            **order,
            **activations,
            codes=packed.codes.ctypes.data,
            scales=packed.scales.ctypes.data,
            table=packed.table.ctypes.data,
            n_rows=packed.n_rows,
            n_blocks=packed.n_blocks,
            scale_stride=packed.scale_stride,
        )
    else:
        activations = _quantized(lowering, x, UNPACKED, grouped, per_row, width)
        name = f"linear_rare.matmul_experts:{weight.type.name.lower()}:{width}"
        lowering.add_product(name, of=x, into=output, **order, **activations, **stored(lowering, weight))


def _padded_matrices(weight: Weight, n_padded: int) -> NDArray[Any]:
    """Return a float weight, padded with zeros to ``n_padded`` columns."""
    data, n_columns = weight.data, int(weight.shape[-1])
    missing = (n_padded - n_columns) * (data.shape[-1] // n_columns)
    return np.pad(data, [(0, 0)] * (data.ndim - 1) + [(0, missing)]) if missing else np.ascontiguousarray(data)


def _padded_rows(lowering: Lowering, x: Tensor, n_padded: int) -> int:
    """Return the address of a copy of the rows of ``x``, padded with zeros to ``n_padded`` columns."""
    n_rows, n_columns = row_size(x.shape) // int(x.shape[-1]), int(x.shape[-1])
    rows = lowering.scratch_memory(
        f"rows of {n_columns} in {n_padded}", 4 * lowering.limits.n_batch * n_rows * n_padded
    )
    sizes = {"n_rows": n_rows, "repeat": 1, "width": n_columns, "x_stride": n_columns, "y_stride": n_padded}
    lowering.add("rows.copy", x, x=x, y=rows, **sizes)
    return rows


def _quantized(
    lowering: Lowering, x: Tensor, format: Format, grouped: Grouped, per_row: int, width: int
) -> dict[str, int]:
    """Quantize the pairs' rows of ``x``, in their order, to int8 blocks for weights of this format."""
    n_columns, offset = int(x.shape[-1]), quantized_offset(format)
    codes = lowering.scratch_memory(f"codes {n_columns}", grouped.n_rows * n_columns)
    scales = lowering.scratch_memory(f"scales {n_columns}", grouped.n_rows * n_columns // 2)
    key = (x, width, offset, grouped.name)
    if lowering.quantized != key:
        lowering.add(
            "quantize.quantize_chosen",
            count=grouped.totals + 8,
            order=grouped.order,
            per_row=per_row,
            x=x,
            codes=codes,
            scales=scales,
            n_blocks=n_columns // 32,
            width=width,
            offset=offset,
        )
        lowering.quantized = key
    return {"x": codes, "x_scales": scales}


def kernels() -> Iterator[str]:
    yield from (f"experts.matvec:{name}" for name in BY_NAME)
    yield from (f"experts.matmul:{name}:{current().tokens}" for name in BY_NAME)
    yield from (f"experts.matvec_float:{name}" for name in FLOATS.values())
    if _float_width() > 1:
        yield from (f"experts.matmul_float:{name}:{_float_width()}" for name in FLOATS.values())
    yield from linear_rare.kernels("matmul_experts")


RULES = {
    "mul_mat_id": Rule(_mul_mat_id, _claims),
    "batched_linear": Rule(_batched_linear, _claims),
}
