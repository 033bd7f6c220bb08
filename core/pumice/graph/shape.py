"""Shapes: numbers, and names for the sizes that only a step knows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pumice.errors import BackendError

N_TOKENS = "n_tokens"
N_OUTPUTS = "n_outputs"
N_SEQS = "n_seqs"

Dim = int | str
Shape = tuple[Dim, ...]
Sizes = Mapping[str, int]
"""The number behind each name: in one step, or in the largest."""


def concrete(shape: Shape, sizes: Sizes) -> tuple[int, ...]:
    """The shape in numbers. Raises BackendError for a name that ``sizes`` does not have."""
    try:
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)
    except KeyError as error:
        raise BackendError(f"the size {error} of {format_shape(shape)} is not known here") from None


def fixed(shape: Shape) -> tuple[int, ...]:
    """A shape without names, as that of every weight, and of every row of an activation."""
    return concrete(shape, {})


def row_size(shape: Shape) -> int:
    """Values in one row: all dimensions but the first multiplied."""
    return math.prod(fixed(shape[1:]))


def mask_width(n_ctx: int) -> int:
    """Columns of a mask over positions: ``n_ctx``, filled up to whole vectors and one more."""
    return (n_ctx + 127) // 64 * 64


def format_shape(shape: Shape) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"
