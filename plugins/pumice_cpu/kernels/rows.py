"""Copies, selections and sums of rows."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import get_f32, get_i32, get_i64, keep_first, put_f32, put_i32, splat_f32, sum_lanes


@inline
def copy_row(source, result, width):
    for i in range(0, width, 16):
        store_up_to(result + 4 * i, load_up_to(source + 4 * i, width - i), width - i)


def copy(thread, n_threads, count, x, y, n_rows, repeat, width, x_stride, y_stride):
    """Copy ``n_rows`` rows per token, each row of x ``repeat`` times. Strides are in values."""
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        copy_row(x + 4 * x_stride * (row // repeat), y + 4 * y_stride * row, width)


def pick(thread, n_threads, count, x, ids, y, n_ids, width):
    """Gather rows of x, of ``width`` values, by the int32 ``ids [count, n_ids]``."""
    rows = get_i64(count) * n_ids
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        copy_row(x + 4 * width * get_i32(ids + 4 * row), y + 4 * width * row, width)


@inline
def hashed(token, multiplier):
    return np.uint64(np.int64(get_f32(token))) * np.uint64(get_i64(multiplier))


def ngram_rows(thread, n_threads, count, tokens, multipliers, sizes, offsets, y, n_tokens, n_each):
    """Return the table rows of the hashed n-grams that end at each token, ``n_each`` per n-gram size."""
    rows = get_i64(count)
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        source, result = tokens + 4 * n_tokens * row, y + 4 * (n_tokens - 1) * n_each * row
        ngram = hashed(source, multipliers)
        for before in range(1, n_tokens):
            ngram ^= hashed(source + 4 * before, multipliers + 8 * before)
            for head in range((before - 1) * n_each, before * n_each):
                table_row = ngram % np.uint64(get_i64(sizes + 8 * head)) + np.uint64(get_i64(offsets + 8 * head))
                put_i32(result + 4 * head, np.int32(table_row))


def gather(thread, n_threads, count, x, ids, y, n_rows, n_ids, width):
    """Gather values of each row of x by the ids of the same row."""
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        for i in range(row * n_ids, (row + 1) * n_ids):
            put_f32(y + 4 * i, get_f32(x + 4 * (width * row + get_i32(ids + 4 * i))))


def sum_last(thread, n_threads, count, x, y, n_rows, width):
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        total = splat_f32(np.float32(0))
        for i in range(0, width, 16):
            total = total + keep_first(load_up_to(x + 4 * (width * row + i), width - i), np.int32(width - i))
        put_f32(y + 4 * row, sum_lanes(total))


def sum_rows(thread, n_threads, count, x, y, n_rows, n_added, width):
    """Add up every ``n_added`` consecutive rows of x to one row of y."""
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        for i in range(0, width, 16):
            left, source = width - i, x + 4 * (row * n_added * width + i)
            total = load_up_to(source, left)
            for j in range(1, n_added):
                total = total + load_up_to(source + 4 * width * j, left)
            store_up_to(y + 4 * (row * width + i), total, left)


@inline
def find_largest(x, ids, width, k):
    """Find the ``k`` largest by repeated search: each next one is smaller than the last, or equal and further right."""
    last, last_at = np.float32(np.inf), np.int64(-1)
    for i in range(k):
        best, best_at = np.float32(-np.inf), np.int64(0)
        has_best = False
        for j in range(width):
            value = get_f32(x + 4 * j)
            after = value < last or (value == last and j > last_at)
            if after and (value > best or not has_best):
                best, best_at, has_best = value, np.int64(j), True
        put_i32(ids + 4 * i, np.int32(best_at))
        last, last_at = best, best_at


def top_k(thread, n_threads, count, x, y, n_rows, width, k):
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        find_largest(x + 4 * width * row, y + 4 * k * row, width, k)
