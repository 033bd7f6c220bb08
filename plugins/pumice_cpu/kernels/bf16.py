"""Panels of bfloat16 for instruction sets with bfloat16 dot products: weights unchanged, activations rounded."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import PANEL_COLUMNS as COLUMNS
from pumice_cpu.formats import PANEL_ROWS as ROWS
from pumice_cpu.formats import PANEL_TOKENS as TOKENS
from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to, transpose, transpose_eight
from pumice_cpu.simd import (
    dot_bf16,
    get_i32,
    get_i64,
    get_u16,
    load_f32,
    load_i32,
    prefetch,
    put_u16,
    registers_f32,
    splat_f32,
    store_f32,
    to_bf16,
)

AHEAD = 2048  # as in linear_float.py


def group(thread, n_threads, count, x, y, width):
    """Like ``linear_float.group``, with pairs of columns in bfloat16; an odd last column is paired with zero."""
    rows, columns = registers_f32(8), registers_f32(8)
    total = get_i64(count)
    padded, parts = (total + TOKENS - 1) // TOKENS * TOKENS, (width + 31) // 32
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        left = width - 32 * part
        start = 32 * part // COLUMNS * COLUMNS
        panel_width = COLUMNS if start + COLUMNS < width else (width - start + 1) // 2 * 2
        for first in range(0, total, TOKENS):
            for row in range(TOKENS):
                n_values = left if first + row < total else 0
                place = x + 4 * ((first + row) * width + 32 * part)
                rows[row] = to_bf16(load_up_to(place, n_values), load_up_to(place + 64, n_values - 16))
            transpose_eight(rows, columns)
            to = y + 2 * (start * padded + first * panel_width + TOKENS * (32 * part - start))
            for pairs in range(8):
                store_up_to(to + 64 * pairs, columns[pairs], TOKENS * ((left + 1) // 2 - 2 * pairs))


@functools.cache
def pair_multiplier() -> Any:
    """Like ``linear_float.panel_multiplier``, for panels of pairs of columns."""

    @inline
    def write(registers, spare, panel, weights, row_bytes, n_rows, n_columns):
        for half in range(ROWS // 16):
            for part in range(n_columns // 32):
                for row in range(16):
                    source = weights + (16 * half + row) * row_bytes + 64 * part
                    registers[row] = splat_f32(np.float32(0))
                    if 16 * half + row < n_rows:
                        registers[row] = load_f32(source)  # each lane holds two bfloat16, moved as bits
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
            prefetch(x + 4 * TOKENS * pair + AHEAD)
            low, high = load_i32(panel + 4 * ROWS * pair), load_i32(panel + 4 * ROWS * pair + 64)
            for t in range(TOKENS):
                value = get_i32(x + 4 * TOKENS * pair + 4 * t)
                total[t] = dot_bf16(total[t], low, value)
                total[TOKENS + t] = dot_bf16(total[TOKENS + t], high, value)

    return write, multiply
