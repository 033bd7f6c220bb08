"""Rules for looking up rows of a table: by kernels, but for large tables of types that have none, which are decoded in
Python before the table of operations runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pumice.plugin import Input, Limits, Node, Tensor, Weight, dequantize, fixed, row_size
from pumice_cpu.formats import EMBEDDING_SCRATCH as SCRATCH
from pumice_cpu.formats import FORMATS, Format
from pumice_cpu.lower.linear_float import TYPES
from pumice_cpu.lower.rule import Lowering, Rule

SMALL = 2**22  # values of a table that is kept as float32


def _claims(node: Node, limits: Limits) -> bool:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    by_input = isinstance(ids, Input) and len(ids.shape) == 1
    return _is_small(weight) or _is_decoded(weight) or weight.type in TYPES or by_input


def _is_small(weight: Weight) -> bool:
    """A bias or a scale for each expert, a row for each position."""
    return len(weight.shape) == 1 or math.prod(fixed(weight.shape)) <= SMALL


def _is_decoded(weight: Weight) -> bool:
    return weight.type in FORMATS and _is_exact(FORMATS[weight.type])


def _is_exact(format: Format) -> bool:
    """Of powers of two as scales, the kernels take the smallest for zero."""
    return format.scales != "e8m0"


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    if _is_decoded(weight):
        _look_up_and_decode(at, weight, ids, node.output)
    elif _is_small(weight):
        _look_up_in_kernel(at, weight, ids, node.output)
    elif weight.type in TYPES:
        _look_up_numbers(at, weight, ids, node.output)
    else:
        _look_up_before(at, weight, ids, node.output)


def _look_up_in_kernel(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    at.add(
        "rows.pick",
        count=at.count_address(ids),
        x=at.address(weight),
        ids=at.address(ids),
        y=at.address(output),
        n_ids=row_size(ids.shape),
        width=row_size(weight.shape),
    )


def _look_up_and_decode(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    format, data = FORMATS[weight.type], weight.data
    n_blocks, row_bytes = row_size(weight.shape) // format.block_columns, row_size(data.shape)
    at.add(
        f"embedding.rows:{format.name}",
        count=at.count_address(ids),
        ids=at.address(ids),
        weights=at.hold(data),
        row_bytes=row_bytes,
        block_bytes=row_bytes // n_blocks,
        table=at.hold(format.lookup_table),
        y=at.address(output),
        n_ids=row_size(ids.shape),
        n_blocks=n_blocks,
        scratch=at.scratch_memory("decoded blocks", SCRATCH * at.pool.n_threads),
    )


def _look_up_numbers(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    at.add(
        f"embedding.float_rows:{TYPES[weight.type]}",
        count=at.count_address(ids),
        ids=at.address(ids),
        weights=at.hold(weight.data),
        y=at.address(output),
        n_ids=row_size(ids.shape),
        width=int(weight.shape[-1]),
    )


def _look_up_before(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    """Few rows of a large table, decoded as they are needed."""
    data, type, name = weight.data, weight.type, ids.name
    at.add_computed(output, lambda inputs: dequantize(data[inputs[name]], type))


def kernels() -> Iterator[str]:
    yield from (f"embedding.rows:{format.name}" for format in FORMATS.values() if _is_exact(format))
    yield from (f"embedding.float_rows:{kind}" for kind in TYPES.values())


RULES = {"embedding": Rule(_embedding, _claims)}
