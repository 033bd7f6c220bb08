"""Panels of bfloat16 for instruction sets that multiply pairs of them: the matrix as it is, activations rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, part_start, transpose
from pumice_cpu.simd import (
    dot_bf16,
    get_i32,
    get_i64,
    get_u16,
    load_f32,
    load_i32,
    put_u16,
    splat_f32,
    store_f32,
)

TOKENS, ROWS, COLUMNS = 8, 32, 256  # as in linear_float.py


@inline
def _rounded(bits):
    """The nearest bfloat16, ties to even, of a float32's bits."""
    return ((np.int64(bits) & 0xFFFFFFFF) + 0x7FFF + ((bits >> 16) & 1)) >> 16


def group(thread, n_threads, count, x, y, width):
    """As ``linear_float.group``, with pairs of columns in bfloat16; an odd last column is paired with zero."""
    total = get_i64(count)
    padded, pairs = (total + TOKENS - 1) // TOKENS * TOKENS, (width + 1) // 2
    for pair in range(part_start(pairs, thread, n_threads), part_start(pairs, thread + 1, n_threads)):
        start = 2 * pair // COLUMNS * COLUMNS
        panel_width = COLUMNS if start + COLUMNS < width else (width - start + 1) // 2 * 2
        to = y + 2 * (start * padded) + 4 * TOKENS * (pair - start // 2)
        for row in range(total):
            place, source = to + 2 * (row // TOKENS * TOKENS * panel_width) + 4 * (row % TOKENS), x + 4 * row * width
            put_u16(place, np.int32(_rounded(get_i32(source + 8 * pair))))
            second = _rounded(get_i32(source + 8 * pair + 4)) if 2 * pair + 1 < width else np.int64(0)
            put_u16(place + 2, np.int32(second))


def pair_multiplier() -> Any:
    """As ``linear_float.panel_multiplier``, for panels of pairs of columns."""

    @inline
    def write(registers, spare, panel, weights, row_bytes, n_rows, n_columns):
        for half in range(ROWS // 16):
            for part in range(n_columns // 32):
                for row in range(16):
                    at = weights + (16 * half + row) * row_bytes + 64 * part
                    registers[row] = splat_f32(np.float32(0))
                    if 16 * half + row < n_rows:
                        registers[row] = load_f32(at)  # of two values each: they are only moved
                transpose(registers, spare)
                for pair in range(16):
                    store_f32(panel + 4 * ROWS * (16 * part + pair) + 64 * half, registers[pair])
        for column in range(n_columns // 32 * 32, (n_columns + 1) // 2 * 2):
            for row in range(ROWS):
                absent = row >= n_rows or column >= n_columns
                value = np.int32(0) if absent else get_u16(weights + row * row_bytes + 2 * column)
                put_u16(panel + 4 * ROWS * (column // 2) + 4 * row + 2 * (column & 1), value)

    @inline
    def multiply(total, panel, x, n_columns):
        for pair in range((n_columns + 1) // 2):
            low, high = load_i32(panel + 4 * ROWS * pair), load_i32(panel + 4 * ROWS * pair + 64)
            for t in range(TOKENS):
                value = get_i32(x + 4 * TOKENS * pair + 4 * t)
                total[t] = dot_bf16(total[t], low, value)
                total[TOKENS + t] = dot_bf16(total[TOKENS + t], high, value)

    return write, multiply
