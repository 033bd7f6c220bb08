"""Shapes: numbers, and names of sizes that each step brings."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from pumice.errors import BackendError

N_TOKENS = "n_tokens"
N_OUTPUTS = "n_outputs"
N_SEQS = "n_seqs"
HIDDEN = -1e30  # in a mask over positions, added to the score of one that is not attended to

Dim = int | str
Shape = tuple[Dim, ...]
Sizes = Mapping[str, int]
"""Sizes by name, of one step or at most."""


def concrete(shape: Shape, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape as numbers. Raises BackendError for a name that is not in ``sizes``."""
    try:
        return tuple([sizes[dim] if isinstance(dim, str) else dim for dim in shape])
    except KeyError as error:
        raise BackendError(f"unknown size {error} in shape {format_shape(shape)}") from None


def fixed(shape: Shape) -> tuple[int, ...]:
    """Return a shape that has no names, such as a weight's or a row's, as integers."""
    return concrete(shape, {})


@functools.lru_cache(4096)
def row_size(shape: Shape) -> int:
    """Return the values in one row: the product of all dimensions but the first."""
    return math.prod(fixed(shape[1:]))


def mask_width(n_ctx: int) -> int:
    """Return the columns of a mask over positions: ``n_ctx``, rounded up to whole vectors plus one vector."""
    return (n_ctx + 127) // 64 * 64


def format_shape(shape: Shape) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"
