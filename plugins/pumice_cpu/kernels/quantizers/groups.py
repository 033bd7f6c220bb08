"""Sixteen groups of numbers in lanes: loads, weights, and stores of codes in order."""

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
    """Load sixteen consecutive groups of ``size`` float32: ``x[i]`` has the i-th number of each."""
    rows, spare = registers_f32(16), registers_f32(16)
    for part in range(size // 16):
        for group in range(16):
            rows[group] = load_f32(place + 4 * (size * group + 16 * part))
        transpose(rows, spare)
        for i in range(16):
            x[16 * part + i] = rows[i]


@inline
def load_columns(place, first, n_columns, size, x):
    """Like ``load_groups`` for a row ``place`` shared by all rows: the first group starts at column ``first``."""
    rows, spare = registers_f32(16), registers_f32(16)
    for part in range(size // 16):
        for group in range(16):
            rows[group] = load_f32(place + 4 * ((first + size * group) % n_columns + 16 * part))
        transpose(rows, spare)
        for i in range(16):
            x[16 * part + i] = rows[i]


@inline
def weigh(x, size, sigma, w):
    """Compute weights: the importance matrix's times the square root of ``sigma`` plus the number's square."""
    for i in range(size):
        w[i] = w[i] * square_root(sigma + x[i] * x[i])


@inline
def codes_in_order(codes, part, rows):
    """Write codes 16 * part to 16 * part + 15 of each group, one group in each of the 16 vectors ``rows``."""
    spare = registers_f32(16)
    for i in range(16):
        rows[i] = as_f32(codes[16 * part + i])
    transpose(rows, spare)


@inline
def bits(rows, i):
    return as_i32(rows[i])


def squares(values, sums, n_blocks, size):
    """Store the sum of squares of each block of ``size`` float32, added in order."""
    rows, spare = registers_f32(16), registers_f32(16)
    for first in range(0, n_blocks, 16):
        total = splat_f32(np.float32(0))
        for start in range(0, size, 16):
            for block in range(16):
                index = first + block if first + block < n_blocks else n_blocks - 1
                rows[block] = load_f32(values + 4 * (index * size + start))
            transpose(rows, spare)
            for i in range(16):
                total = total + rows[i] * rows[i]
        store_f32(sums + 4 * first, total)


@inline
def number(place, index):
    return get_f32(place + 4 * index)
