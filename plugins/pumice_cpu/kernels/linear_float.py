"""Products of float matrices and other plain numbers, in their layout in the file, with float32 activations."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import PANEL_COLUMNS as COLUMNS
from pumice_cpu.formats import PANEL_ROWS as ROWS
from pumice_cpu.formats import PANEL_TOKENS as TOKENS
from pumice_cpu.kernels.bf16 import pair_multiplier
from pumice_cpu.kernels.common import inline, load_up_to, next_part, part_start, store_up_to, transpose, transpose_eight
from pumice_cpu.kernels.linear import RUN, STREAMS, tiles_at_once
from pumice_cpu.simd import (
    fma,
    get_bf16,
    get_f16,
    get_f32,
    get_f64,
    get_i8,
    get_i32,
    get_i64,
    get_u16,
    load_bf16,
    load_f16,
    load_f32,
    load_f64,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    prefetch,
    put_f32,
    registers_f32,
    splat_f32,
    store_f32,
    sum_lanes,
    to_f32,
)

SUMS = 4  # independent partial sums per row of a matrix
MANY = 4  # groups of activations for each thread, from which on threads divide groups
AHEAD = 2048  # prefetch distance in bytes of activations


@inline
def _load_i8(place):
    return to_f32(load_i8(place))


@inline
def _load_i16(place):
    return to_f32(load_i16(place))


@inline
def _load_i32(place):
    return to_f32(load_i32(place))


@inline
def _get_f64(place):
    return np.float32(get_f64(place))


@inline
def _get_i8(place):
    return np.float32(get_i8(place))


@inline
def _get_i16(place):
    return np.float32(np.int16(get_u16(place)))


@inline
def _get_i32(place):
    return np.float32(get_i32(place))


@inline
def _get_i64(place):
    return np.float32(get_i64(place))


#: By type: bytes per value, how to load sixteen values, how to load one.
LOADS = {
    "f32": (4, load_f32, get_f32),
    "f16": (2, load_f16, get_f16),
    "bf16": (2, load_bf16, get_bf16),
    "f64": (8, load_f64, _get_f64),
    "i8": (1, _load_i8, _get_i8),
    "i16": (2, _load_i16, _get_i16),
    "i32": (4, _load_i32, _get_i32),
    "i64": (8, load_i64, _get_i64),
}


@functools.cache
def run_multiplier(type: str) -> Any:
    """Return a function that multiplies the rows ``row`` to ``end`` of a matrix by one row of activations.

    STREAMS rows at equal distances are multiplied at once, and the last few one by one: the processor prefetches each,
    and
    ``x``, which may exceed the first-level cache, is loaded once for all. ``total`` has STREAMS * SUMS registers.
    """
    size, load, get = LOADS[type]

    @inline
    def dots(total, weights, bias, x, y, row, apart, n_columns):
        """Multiply the rows ``row``, ``row + apart`` and so on."""
        place, stride = weights + row * n_columns * size, apart * n_columns * size
        for i in range(STREAMS * SUMS):
            total[i] = splat_f32(np.float32(0))
        for several in range(n_columns // (16 * SUMS)):
            for i in range(SUMS):
                chunk = SUMS * several + i
                value = load_f32(x + 64 * chunk)
                for stream in range(STREAMS):
                    weight = load(place + stream * stride + 16 * size * chunk)
                    total[STREAMS * i + stream] = fma(weight, value, total[STREAMS * i + stream])
        for chunk in range(n_columns // (16 * SUMS) * SUMS, n_columns // 16):
            value = load_f32(x + 64 * chunk)
            for stream in range(STREAMS):
                total[stream] = fma(load(place + stream * stride + 16 * size * chunk), value, total[stream])
        for i in range(STREAMS, STREAMS * SUMS):
            total[i % STREAMS] = total[i % STREAMS] + total[i]
        for stream in range(STREAMS):
            result = sum_lanes(total[stream])
            for column in range(n_columns // 16 * 16, n_columns):
                result += get(place + stream * stride + size * column) * get_f32(x + 4 * column)
            if bias != 0:
                result += get_f32(bias + 4 * (row + stream * apart))
            put_f32(y + 4 * (row + stream * apart), result)

    @inline
    def multiply_run(total, weights, bias, x, y, row, end, n_columns):
        apart = (end - row) // STREAMS
        for first_row in range(row, row + apart):
            dots(total, weights, bias, x, y, first_row, apart, n_columns)
        for first_row in range(row + STREAMS * apart, end):
            dots(total, weights, bias, x, y, first_row, 0, n_columns)

    return multiply_run


def matvec(type: str) -> Any:
    """Return a kernel for one row of activations."""
    multiply_run, size = run_multiplier(type), LOADS[type][0]

    def kernel(thread, n_threads, ticket, weights, bias, x, y, n_rows, n_columns):
        total = registers_f32(16)
        step = tiles_at_once(n_rows, n_threads, size * n_columns, RUN)
        row = next_part(ticket) * step
        while row < n_rows:
            end = row + step if row + step < n_rows else n_rows
            multiply_run(total, weights, bias, x, y, row, end, n_columns)
            row = next_part(ticket) * step

    return kernel


@inline
def _padded(n_tokens):
    return (n_tokens + TOKENS - 1) // TOKENS * TOKENS


def group(thread, n_threads, count, x, y, width):
    """Arrange rows of ``width`` values as ``matmul`` reads them.

    Panels of COLUMNS columns follow each other; within a panel, groups of TOKENS rows; within a group, columns. Missing
    rows are zeros. Threads divide many rows, so that each reads memory in order, or the columns of a few.
    """
    rows, columns = registers_f32(8), registers_f32(8)
    total = get_i64(count)
    parts, groups = (width + 15) // 16, _padded(total) // TOKENS
    divides_rows = groups >= MANY * n_threads
    first_part = np.int64(0) if divides_rows else part_start(parts, thread, n_threads)
    end_part = parts if divides_rows else part_start(parts, thread + 1, n_threads)
    first_group = part_start(groups, thread, n_threads) if divides_rows else np.int64(0)
    end_group = part_start(groups, thread + 1, n_threads) if divides_rows else groups
    for first in range(TOKENS * first_group, TOKENS * end_group, TOKENS):
        for part in range(first_part, end_part):
            left = width - 16 * part
            start = 16 * part // COLUMNS * COLUMNS
            panel_width = COLUMNS if start + COLUMNS < width else width - start
            for row in range(TOKENS):
                n_values = left if first + row < total else 0
                rows[row] = load_up_to(x + 4 * ((first + row) * width + 16 * part), n_values)
            transpose_eight(rows, columns)
            to = y + 4 * (start * _padded(total) + first * panel_width + TOKENS * (16 * part - start))
            for pair in range(8):
                store_up_to(to + 64 * pair, columns[pair], TOKENS * (left - 2 * pair))


@functools.cache
def panel_multiplier(type: str) -> Any:
    """Return two functions for panels.

    ``write`` transposes rows of a matrix into a panel, with zeros for missing rows; ``multiply`` accumulates a panel
    times a group of activations in registers.
    """
    size, load, get = LOADS[type]

    @inline
    def write(registers, spare, panel, weights, row_bytes, n_rows, n_columns):
        for half in range(ROWS // 16):
            for part in range(n_columns // 16):
                for row in range(16):
                    source = weights + (16 * half + row) * row_bytes + 16 * size * part
                    registers[row] = splat_f32(np.float32(0))
                    if 16 * half + row < n_rows:
                        registers[row] = load(source)
                transpose(registers, spare)
                for column in range(16):
                    store_f32(panel + 4 * ROWS * (16 * part + column) + 64 * half, registers[column])
        for column in range(n_columns // 16 * 16, n_columns):
            for row in range(ROWS):
                value = get(weights + row * row_bytes + size * column) if row < n_rows else np.float32(0)
                put_f32(panel + 4 * ROWS * column + 4 * row, value)

    @inline
    def multiply(total, panel, x, n_columns):
        for column in range(n_columns):
            prefetch(x + 4 * TOKENS * column + AHEAD)
            low, high = load_f32(panel + 4 * ROWS * column), load_f32(panel + 4 * ROWS * column + 64)
            for t in range(TOKENS):
                value = splat_f32(get_f32(x + 4 * TOKENS * column + 4 * t))
                total[t] = fma(low, value, total[t])
                total[TOKENS + t] = fma(high, value, total[TOKENS + t])

    return write, multiply


@inline
def panels_of_item(n_panels, n_threads, most):
    """Return how many panels a thread takes at once: the most that leave no thread waiting longer than single ones."""
    count, least = np.int64(1), (n_panels + n_threads - 1) // n_threads
    for several in range(2, most + 1):
        n_items = (n_panels + several - 1) // several
        if (n_items + n_threads - 1) // n_threads * several <= least:
            count = np.int64(several)
    return count


def matmul(type: str, groups: str) -> Any:
    """Return a kernel for several tokens, whose activations are in groups.

    Args:
        type: type of the matrix.
        groups: ``pairs`` of bfloat16 (kernels/bf16.py), or ``single`` numbers.

    Each thread converts up to ``most`` panels of the matrix to float32, column by column, in its part of ``scratch``
    (``4 * ROWS * COLUMNS`` bytes each), and multiplies them by all groups, each of which is read from memory once.
    Partial results of earlier panels are kept in ``y``.
    """
    size, pairs = LOADS[type][0], groups == "pairs"
    write_panel, multiply = pair_multiplier() if pairs else panel_multiplier(type)
    x_bytes = 2 if pairs else 4

    def kernel(thread, n_threads, ticket, count, weights, bias, x, scratch, y, n_rows, n_columns, most):
        total, registers, spare = registers_f32(16), registers_f32(16), registers_f32(16)
        n_tokens = get_i64(count)
        panels = scratch + thread * 4 * ROWS * COLUMNS * most
        step = panels_of_item((n_rows + ROWS - 1) // ROWS, n_threads, most) * ROWS
        row = next_part(ticket) * step
        while row < n_rows:
            end_row = row + step if row + step < n_rows else n_rows
            for column in range(0, n_columns, COLUMNS):
                width = COLUMNS if column + COLUMNS < n_columns else n_columns - column
                x_width = (width + 1) // 2 * 2 if pairs else width
                for own in range(row, end_row, ROWS):
                    place, panel = weights + (own * n_columns + column) * size, panels + 4 * COLUMNS * (own - row)
                    write_panel(registers, spare, panel, place, n_columns * size, n_rows - own, width)
                for first in range(0, n_tokens, TOKENS):
                    group = x + x_bytes * (column * _padded(n_tokens) + first * x_width)
                    for own in range(row, end_row, ROWS):
                        for i in range(2 * TOKENS):
                            total[i] = splat_f32(np.float32(0))
                        multiply(total, panels + 4 * COLUMNS * (own - row), group, width)
                        for i in range(2 * TOKENS):
                            half, token = i // TOKENS, first + i % TOKENS
                            left = n_rows - own - 16 * half
                            if token < n_tokens and left > 0:
                                to = y + 4 * (token * n_rows + own + 16 * half)
                                result = total[i]
                                if column > 0:
                                    result = result + load_up_to(to, left)
                                elif bias != 0:
                                    result = result + load_up_to(bias + 4 * own + 64 * half, left)
                                store_up_to(to, result, left)
            row = next_part(ticket) * step

    return kernel
