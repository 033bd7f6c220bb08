"""Rules for lookups in tables.

Kernels look up all types that they support. Rows of large tables of other types are decoded in Python before the table
of operations runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pumice.plugin import Tensor, Weight, dequantize, fixed
from pumice.plugin.unstable import Input, Limits, Node, row_size
from pumice_cpu.formats import EMBEDDING_SCRATCH as SCRATCH
from pumice_cpu.formats import FORMATS, Format
from pumice_cpu.lower.linear_float import TYPES
from pumice_cpu.lower.rows import pick_rows
from pumice_cpu.lower.rule import Lowering, Rule

SMALL = 2**22  # maximum values of a table that is decoded to float32 at load time


def _claims(node: Node, limits: Limits) -> bool:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    by_input = isinstance(ids, Input) and len(ids.shape) == 1
    return _is_small(weight) or _is_decoded(weight) or weight.type in TYPES or by_input


def _is_small(weight: Weight) -> bool:
    """Return True for a table that is decoded at load time: a bias or scale per expert, a row per position."""
    return len(weight.shape) == 1 or math.prod(fixed(weight.shape)) <= SMALL


def _is_decoded(weight: Weight) -> bool:
    return weight.type in FORMATS and _is_exact(FORMATS[weight.type])


def _is_exact(format: Format) -> bool:
    """Return True if kernels decode the format exactly; with power-of-two scales they flush the smallest to zero."""
    return format.scales != "e8m0"


def _embedding(lowering: Lowering, node: Node) -> None:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    if _is_decoded(weight):
        _look_up_and_decode(lowering, weight, ids, node.output)
    elif _is_small(weight):
        pick_rows(lowering, weight, ids, node.output)
    elif weight.type in TYPES:
        _look_up_numbers(lowering, weight, ids, node.output)
    else:
        _look_up_before(lowering, weight, ids, node.output)


def _look_up_and_decode(lowering: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    format, data = FORMATS[weight.type], weight.data
    n_blocks, row_bytes = row_size(weight.shape) // format.block_columns, row_size(data.shape)
    lowering.add(
        f"embedding.rows:{format.name}",
        ids,
        ids=ids,
        weights=data,
        row_bytes=row_bytes,
        block_bytes=row_bytes // n_blocks,
        table=format.lookup_table,
        y=output,
        n_ids=row_size(ids.shape),
        n_blocks=n_blocks,
        scratch=lowering.scratch_memory("decoded blocks", SCRATCH * lowering.pool.n_threads),
    )


def _look_up_numbers(lowering: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    kernel, sizes = f"embedding.float_rows:{TYPES[weight.type]}", {"n_ids": row_size(ids.shape)}
    lowering.add(kernel, ids, ids=ids, weights=weight.data, y=output, **sizes, width=int(weight.shape[-1]))


def _look_up_before(lowering: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    """Look up few rows of a large table, decoded in Python before the kernels run."""
    data, type, name = weight.data, weight.type, ids.name
    lowering.add_computed(output, lambda inputs: dequantize(data[inputs[name]], type))


def kernels() -> Iterator[str]:
    yield from (f"embedding.rows:{format.name}" for format in FORMATS.values() if _is_exact(format))
    yield from (f"embedding.float_rows:{kind}" for kind in TYPES.values())


RULES = {"embedding": Rule(_embedding, _claims)}
