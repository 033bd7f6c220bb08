"""The grids of IQ1, IQ2 and IQ3: combinations of 8 or 4 digits that have a code, and neighbours of those without.

A digit stands for the odd number ``2 * digit + 1``. The digits of a combination form one number, the lowest digit
first. The grids come from the gguf package; the tables are built as in ggml (`ggml-quants.c`).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LANES = 16


class Grid(NamedTuple):
    """Lookup tables of a grid for kernels.

    Attributes:
        points: odd numbers of each combination that has a code, uint8 [n, digits].
        lookup: code of each combination, or -1 minus the index of its list of neighbours; int32.
        lists: start of each list in groups of 16, and the end of the last one; int32.
        codes: codes of neighbours, nearest first, int32 [groups, 16]; the last code pads its group.
        neighbours: odd numbers of each neighbour, uint8 [groups, digits, 16].
    """

    points: NDArray[np.uint8]
    lookup: NDArray[np.int32]
    lists: NDArray[np.int32]
    codes: NDArray[np.int32]
    neighbours: NDArray[np.uint8]


class _Shape(NamedTuple):
    source: str  # class of the gguf package
    bits: int  # bits per digit
    n_distances: int  # neighbours are the points at the n smallest distances


_SHAPES = {
    "iq2_xxs": _Shape("IQ2_XXS", 2, 2),
    "iq2_xs": _Shape("IQ2_XS", 2, 2),
    "iq2_s": _Shape("IQ2_S", 2, 1),
    "iq3_xxs": _Shape("IQ3_XXS", 3, 2),
    "iq3_s": _Shape("IQ3_S", 3, 3),
    "iq1": _Shape("IQ1_S", 2, 3),
}


@functools.cache
def grid(name: str) -> Grid:
    """Return the tables of a grid, built at the first call."""
    import gguf.quants

    shape = _SHAPES[name]
    source = getattr(gguf.quants, shape.source)
    source.init_grid()
    levels = source.grid.reshape(source.grid_shape)
    digits = np.searchsorted(np.array(source.grid_map, np.float32), levels).astype(np.int64)
    n_digits = digits.shape[1]
    numbers = (digits << shape.bits * np.arange(n_digits)).sum(axis=1)
    top = 8 if shape.bits == 3 else 3  # largest digit
    all_digits = np.indices((top,) * n_digits).reshape(n_digits, -1).T[:, ::-1]
    all_numbers = (all_digits << shape.bits * np.arange(n_digits)).sum(axis=1)
    order = np.argsort(all_numbers)
    lookup = np.zeros(1 << shape.bits * n_digits, np.int32)
    lookup[numbers] = np.arange(len(numbers))
    missing = order[~np.isin(all_numbers[order], numbers)]
    lookup[all_numbers[missing]] = -1 - np.arange(len(missing))
    odd = (2 * digits + 1).astype(np.uint8)
    return Grid(odd, lookup, *_neighbours(odd, (2 * all_digits[missing] + 1), shape.n_distances))


def _neighbours(
    points: NDArray[np.uint8], others: NDArray[np.int64], n_distances: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Return lists, codes and neighbours of a `Grid`: nearest points first, ties by lower code."""
    ends, codes = [0], []
    wide = points.astype(np.float32)
    for start in range(0, len(others), 1024):
        some = others[start : start + 1024].astype(np.float32)
        distances = (some**2).sum(axis=1)[:, None] - 2 * some @ wide.T + (wide**2).sum(axis=1)
        for row in distances.astype(np.int32):
            farthest = np.unique(row)[:n_distances][-1]
            near = np.flatnonzero(row <= farthest)
            near = near[np.argsort(row[near], kind="stable")]
            padded = np.full(-(-len(near) // LANES) * LANES, near[-1])
            padded[: len(near)] = near
            codes.append(padded)
            ends.append(ends[-1] + len(padded) // LANES)
    all_codes = np.concatenate(codes).astype(np.int32).reshape(-1, LANES)
    neighbours = np.ascontiguousarray(points[all_codes].transpose(0, 2, 1))
    return np.array(ends, np.int32), all_codes, neighbours
