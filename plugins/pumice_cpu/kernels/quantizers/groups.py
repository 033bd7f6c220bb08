"""Sixteen groups of numbers in lanes: reading them, their weights, and writing codes back in order."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline, transpose
from pumice_cpu.simd import (
    as_f32,
    as_i32,
    get_f32,
    load_f32,
    registers_f32,
    splat_f32,
    square_root,
    store_f32,
)


@inline
def load_groups(place, size, x):
    """Sixteen groups of ``size`` float32 that follow each other: ``x[i]`` has the i-th of each."""
    rows, spare = registers_f32(16), registers_f32(16)
    for part in range(size // 16):
        for group in range(16):
            rows[group] = load_f32(place + 4 * (size * group + 16 * part))
        transpose(rows, spare)
        for i in range(16):
            x[16 * part + i] = rows[i]


@inline
def load_columns(place, first, n_columns, size, x):
    """As ``load_groups``, of the one row ``place`` that goes with every row: the first group is of column ``first``."""
    rows, spare = registers_f32(16), registers_f32(16)
    for part in range(size // 16):
        for group in range(16):
            rows[group] = load_f32(place + 4 * ((first + size * group) % n_columns + 16 * part))
        transpose(rows, spare)
        for i in range(16):
            x[16 * part + i] = rows[i]


@inline
def weigh(x, size, sigma, w):
    """Weights of numbers: those of the importance matrix times the root of ``sigma`` and the number's square."""
    for i in range(size):
        w[i] = w[i] * square_root(sigma + x[i] * x[i])


@inline
def codes_in_order(codes, part, rows):
    """Codes 16 * part and the next fifteen of each group, one group in each of the 16 vectors ``rows``."""
    spare = registers_f32(16)
    for i in range(16):
        rows[i] = as_f32(codes[16 * part + i])
    transpose(rows, spare)


@inline
def bits(rows, i):
    return as_i32(rows[i])


def squares(values, sums, n_blocks, size):
    """The sum of the squares of each block of ``size`` float32, in order."""
    rows, spare = registers_f32(16), registers_f32(16)
    for first in range(0, n_blocks, 16):
        total = splat_f32(np.float32(0))
        for start in range(0, size, 16):
            for block in range(16):
                there = first + block if first + block < n_blocks else n_blocks - 1
                rows[block] = load_f32(values + 4 * (there * size + start))
            transpose(rows, spare)
            for i in range(16):
                total = total + rows[i] * rows[i]
        store_f32(sums + 4 * first, total)


@inline
def number(place, index):
    return get_f32(place + 4 * index)
