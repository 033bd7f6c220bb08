"""Products where each row selects one of several matrices: experts, or one matrix per head.

A pair is a token and one of its matrices. ``group`` sorts the pairs by matrix, so each matrix is read once for all of
its tokens.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import BY_NAME, Format
from pumice_cpu.kernels import linear_float
from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kernels.linear import CACHED, RUN, STREAMS, run_multiplier, store_tile, tile_multiplier, tiles_at_once
from pumice_cpu.simd import (
    fma,
    get_i32,
    get_i64,
    load_bf16,
    load_f16,
    load_f32,
    put_f32,
    put_i32,
    put_i64,
    registers_f32,
    registers_u8,
    splat_f32,
    sum_lanes,
)

FLOAT_ROWS = 4  # rows of a float matrix per item of work


def group(thread, n_threads, count, ids, order, matrices, starts, places, totals, n_used, n_matrices, width):
    """Sort the pairs of ``ids [count, n_used]`` by matrix; each matrix's pairs are padded with -1 to ``width``.

    Pairs whose ids are below 0 are left out.

    Args:
        order: gets the pairs in order.
        matrices: gets the used matrices.
        starts: gets the start of each matrix's pairs in ``order``, and the end.
        totals: gets the number of used matrices and the length of the order.
        places: scratch memory for all matrices.
    """
    if thread != 0:
        return
    n_pairs = get_i64(count) * n_used
    for matrix in range(n_matrices):
        put_i32(places + 4 * matrix, np.int32(0))
    for pair in range(n_pairs):
        if get_i32(ids + 4 * pair) >= 0:
            place = places + 4 * get_i32(ids + 4 * pair)
            put_i32(place, np.int32(get_i32(place) + 1))
    n_groups, end = np.int64(0), np.int64(0)
    for matrix in range(n_matrices):
        n = get_i32(places + 4 * matrix)
        if n > 0:
            put_i32(matrices + 4 * n_groups, np.int32(matrix))
            put_i32(starts + 4 * n_groups, np.int32(end))
            put_i32(places + 4 * matrix, np.int32(end))
            n_groups += 1
            end += (n + width - 1) // width * width
    put_i32(starts + 4 * n_groups, np.int32(end))
    for i in range(end):
        put_i32(order + 4 * i, np.int32(-1))
    for pair in range(n_pairs):
        if get_i32(ids + 4 * pair) >= 0:
            place = places + 4 * get_i32(ids + 4 * pair)
            index = get_i32(place)
            put_i32(order + 4 * index, np.int32(pair))
            put_i32(place, np.int32(index + 1))
    put_i64(totals, n_groups)
    put_i64(totals + 8, end)


@inline
def part_of(part, step, n, matrices, starts):
    """Return the matrix of an item of work, and its ranges of tiles (or rows) and of pairs in the order.

    A matrix of ``n`` tiles or rows makes as many items as needed when an item takes ``step`` of them.
    """
    steps = (n + step - 1) // step
    which, start = part // steps, part % steps * step
    end = start + step if start + step < n else n
    return get_i32(matrices + 4 * which), start, end, get_i32(starts + 4 * which), get_i32(starts + 4 * which + 4)


@inline
def balanced(step, n_tiles, n_threads, starts, n_matrices):
    """Return ``step``, or fewer tiles if an item of the matrix with the most pairs was too large a part of the work."""
    most = np.int64(1)
    for i in range(n_matrices):
        n_pairs = get_i32(starts + 4 * i + 4) - get_i32(starts + 4 * i)
        most = n_pairs if n_pairs > most else most
    even = get_i32(starts + 4 * n_matrices) * n_tiles // (4 * n_threads * most)
    even = even if even > 1 else 1
    return step if step < even else even


@functools.cache
def pairs_multiplier(format: Format, width: int) -> Any:
    """Return a function that multiplies a tile by activations of the pairs ``first`` to ``end``, ``width`` at a time.

    The result of a pair is stored in its row of y.
    """
    multiply = tile_multiplier(format, width)

    @inline
    def multiply_pairs(
        total, registers, codes, scales, table, x, x_scales, y, order, first, end, tile, n_rows, n_blocks
    ):  # fmt: skip
        for start in range(first, end, width):
            place = start * n_blocks
            multiply(total, registers, codes, scales, 0, 0, table, x + 32 * place, x_scales + 16 * place, n_blocks)
            for t in range(width):
                pair = get_i32(order + 4 * (start + t))
                if pair >= 0:
                    store_tile(total[t], 0, y + 4 * pair * n_rows, tile, n_rows)

    return multiply_pairs


def matvec(format_name: str) -> Any:
    """Like ``linear.matvec``, for each pair of each matrix."""
    format = BY_NAME[format_name]
    multiply_run, code_bytes = run_multiplier(format), format.code_bytes

    def kernel(
        thread, n_threads, ticket, order, matrices, starts, totals, codes, scales, table, x, x_scales, y, n_rows,
        n_blocks, scale_stride,
    ):  # fmt: skip
        total, registers = registers_f32(STREAMS), registers_u8(8)
        n_tiles = (n_rows + 15) // 16
        step = tiles_at_once(get_i64(totals) * n_tiles, n_threads, n_blocks * code_bytes, RUN)
        steps = (n_tiles + step - 1) // step
        part = next_part(ticket)
        while part < get_i64(totals) * steps:
            matrix, tile, end, first_pair, end_pair = part_of(part, step, n_tiles, matrices, starts)
            first_tile = matrix * n_tiles
            its_codes, its_scales = codes + first_tile * n_blocks * code_bytes, scales + first_tile * scale_stride
            for index in range(first_pair, end_pair):
                place, pair = index * n_blocks, get_i32(order + 4 * index)
                multiply_run(
                    total, registers, its_codes, its_scales, table, 0, x + 32 * place, x_scales + 16 * place,
                    y + 4 * pair * n_rows, tile, end, n_rows, n_blocks, scale_stride,
                )  # fmt: skip
            part = next_part(ticket)

    return kernel


def matmul(format_name: str, n_tokens: str) -> Any:
    """Like ``linear.matmul``; the result of a pair is stored in its row of y."""
    format, width = BY_NAME[format_name], int(n_tokens)
    multiply_pairs, code_bytes = pairs_multiplier(format, width), format.code_bytes

    def kernel(
        thread, n_threads, ticket, order, matrices, starts, totals, codes, scales, table, x, x_scales, y, n_rows,
        n_blocks, scale_stride,
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tiles = (n_rows + 15) // 16
        step = tiles_at_once(get_i64(totals) * n_tiles, n_threads, n_blocks * code_bytes, CACHED)
        step = balanced(step, n_tiles, n_threads, starts, get_i64(totals))
        steps = (n_tiles + step - 1) // step
        part = next_part(ticket)
        while part < get_i64(totals) * steps:
            matrix, first_tile, end_tile, first, end = part_of(part, step, n_tiles, matrices, starts)
            for tile in range(first_tile, end_tile):
                index = matrix * n_tiles + tile
                tile_codes, tile_scales = codes + index * n_blocks * code_bytes, scales + index * scale_stride
                multiply_pairs(
                    total, registers, tile_codes, tile_scales, table, x, x_scales, y, order, first, end, tile, n_rows,
                    n_blocks,
                )  # fmt: skip
            part = next_part(ticket)

    return kernel


_LOADS = {"f32": (load_f32, 4), "f16": (load_f16, 2), "bf16": (load_bf16, 2)}


def matvec_float(type_name: str) -> Any:
    """Like ``matvec``, for float matrices. Row ``pair // per_row`` of x belongs to a pair."""
    multiply_run, size = linear_float.run_multiplier(type_name), _LOADS[type_name][1]

    def kernel(
        thread, n_threads, ticket, order, matrices, starts, totals, weights, per_row, x, y, n_rows, n_columns
    ):  # fmt: skip
        total = registers_f32(16)
        step = tiles_at_once(get_i64(totals) * n_rows, n_threads, size * n_columns, RUN)
        steps = (n_rows + step - 1) // step
        part = next_part(ticket)
        while part < get_i64(totals) * steps:
            chosen, row, end, first_pair, end_pair = part_of(part, step, n_rows, matrices, starts)
            matrix = weights + size * n_columns * n_rows * chosen
            for index in range(first_pair, end_pair):
                pair = get_i32(order + 4 * index)
                source, result = x + 4 * n_columns * (pair // per_row), y + 4 * n_rows * pair
                multiply_run(total, matrix, 0, source, result, row, end, n_columns)
            part = next_part(ticket)

    return kernel


def matmul_float(type_name: str, n_tokens: str) -> Any:
    """Return a kernel for matrices of this type, unpacked. Row ``pair // per_row`` of x belongs to a pair."""
    load, size = _LOADS[type_name]
    width = int(n_tokens)
    n_sums = FLOAT_ROWS * width

    def kernel(
        thread, n_threads, ticket, order, matrices, starts, totals, weights, per_row, x, y, n_rows, n_columns
    ):  # fmt: skip
        total, values = registers_f32(n_sums), registers_f32(FLOAT_ROWS)
        n_tiles = (n_rows + FLOAT_ROWS - 1) // FLOAT_ROWS
        stride = size * n_columns
        part = next_part(ticket)
        while part < get_i64(totals) * n_tiles:
            which, first_row = part // n_tiles, part % n_tiles * FLOAT_ROWS
            left = n_rows - first_row
            matrix = weights + stride * (n_rows * get_i32(matrices + 4 * which) + first_row)
            for first in range(get_i32(starts + 4 * which), get_i32(starts + 4 * which + 4), width):
                for i in range(n_sums):
                    total[i] = splat_f32(np.float32(0))
                for column in range(0, n_columns, 16):
                    for row in range(FLOAT_ROWS):
                        values[row] = load(matrix + stride * (row if row < left else 0) + size * column)
                    for t in range(width):
                        pair = get_i32(order + 4 * (first + t))
                        source = x + 4 * (n_columns * ((pair if pair >= 0 else 0) // per_row) + column)
                        four = load_f32(source)
                        for row in range(FLOAT_ROWS):
                            total[FLOAT_ROWS * t + row] = fma(values[row], four, total[FLOAT_ROWS * t + row])
                for t in range(width):
                    pair = get_i32(order + 4 * (first + t))
                    for row in range(FLOAT_ROWS):
                        if pair >= 0 and row < left:
                            put_f32(y + 4 * (n_rows * pair + first_row + row), sum_lanes(total[FLOAT_ROWS * t + row]))
            part = next_part(ticket)

    return kernel
