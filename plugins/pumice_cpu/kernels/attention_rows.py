"""Attention of rows in registers: scores (lanes are positions), their weights, then values (lanes are columns)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import LOWEST, SEEN, zero
from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.elementwise import tanh
from pumice_cpu.kv_cache import CHUNK
from pumice_cpu.simd import (
    between,
    fma,
    get_f32,
    get_i64,
    load_f32,
    max_lanes,
    maximum,
    power_of_two,
    put_f32,
    splat_f32,
    store_f32,
)

WEIGHT_STRIDE = 4 * (CHUNK + 16)  # stride of the weights in bytes per row


@functools.cache
def product_functions(rows: int, width: int) -> tuple[Any, Any]:
    """Return the functions that multiply queries by keys, and that add weighted values, for ``rows`` x ``width``."""
    n_total = rows * width

    @inline
    def add_scores(query, stride, keys, key_stride, k_dim, weights, total, vectors):
        """Add products of the rows at ``query`` with 16 * width positions."""
        for i in range(n_total):
            total[i] = zero()
        for column in range(k_dim):
            for w in range(width):
                vectors[w] = load_f32(keys + 64 * column + w * key_stride)
            for r in range(rows):
                x = splat_f32(get_f32(query + stride * r + 4 * column))
                for w in range(width):
                    total[r * width + w] = fma(x, vectors[w], total[r * width + w])
        for r in range(rows):
            for w in range(width):
                store_f32(weights + WEIGHT_STRIDE * r + 64 * w, total[r * width + w])

    @inline
    def add_values(weights, begin, end, values, stride, v_width, outputs, shrinks, total, vectors):
        """Scale the outputs of the rows by ``shrinks``, and add the weighted values of positions of the chunk."""
        for v in range(0, v_width // 16, width):
            for r in range(rows):
                shrink = splat_f32(get_f32(shrinks + 4 * r))
                for w in range(width):
                    total[r * width + w] = load_f32(outputs + 64 * ((v + w) * rows + r)) * shrink
            for i in range(begin, end):
                for w in range(width):
                    vectors[w] = load_f32(values + stride * (v + w) + 64 * i)
                for r in range(rows):
                    x = splat_f32(get_f32(weights + WEIGHT_STRIDE * r + 4 * i))
                    for w in range(width):
                        total[r * width + w] = fma(x, vectors[w], total[r * width + w])
            for r in range(rows):
                for w in range(width):
                    store_f32(outputs + 64 * ((v + w) * rows + r), total[r * width + w])

    return add_scores, add_values


@functools.cache
def score_functions(is_capped: bool, is_biased: bool) -> tuple[Any, Any]:
    """Return the functions that finish the scores of a row and find their maximum, and that compute weights."""

    @inline
    def finish_scores(weights, begin, end, masked, first, last, cap, bias):
        """Return the maximum of a row's scores from ``first`` to ``last``; the others are masked."""
        top = splat_f32(LOWEST)
        for i in range(begin, end, 16):
            x = load_f32(weights + 4 * i)
            if is_capped:
                x = cap * tanh(x)
            if is_biased:
                x = x + load_f32(bias + 4 * i)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), splat_f32(LOWEST))
            if masked or is_capped or is_biased:
                store_f32(weights + 4 * i, x)
            top = maximum(top, x)
        return max_lanes(top)

    @inline
    def weigh(weights, begin, end, masked, first, last, highest):
        """Replace a row's scores by weights relative to the highest score, and return their sum in 16 lanes."""
        total = zero()
        for i in range(begin, end, 16):
            x = power_of_two(load_f32(weights + 4 * i) - highest)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), zero())
            store_f32(weights + 4 * i, x)
            total = total + x
        return total

    return finish_scores, weigh


def seen_function(mask: str) -> Any:
    """Return a function for the positions that rows see; ``mask`` is a key of SEEN."""
    first_of, end_of = SEEN[mask]

    @inline
    def seen_of(part, low, high, chunk, chunk_end, window):
        """Return begin and end of the decoded positions that rows at positions ``low`` to ``high`` see."""
        begin = part.first - chunk if part.first > chunk else np.int64(0)
        first, end = first_of(low, window, part.length) - chunk, end_of(high, window, part.length) - chunk
        return first if first > begin else begin, end if end < chunk_end else chunk_end

    return seen_of


@functools.cache
def row_function(rows: int, width: int, scores: str, mask: str) -> Any:
    """Return a function that attends with up to ``rows`` rows to decoded positions; arguments as in ``attend``."""
    is_chosen, span = "chosen" in scores, 16 * width  # positions
    add_scores, add_values = product_functions(rows, width)
    finish_scores, weigh = score_functions("capped" in scores, is_chosen or "biased" in scores)
    (first_of, end_of), seen_of = SEEN[mask], seen_function(mask)

    @inline
    def attend_rows(shape, part, buffers, r0, chunk, chunk_end, capping, bias, total, vectors):
        """Attend with the rows from ``r0`` to the decoded positions ``chunk`` to ``chunk + chunk_end``."""
        shrinks = buffers.weights + 4 * CHUNK  # beside the first row's weights
        window, length = shape.window, part.length
        n_rows = part.n - r0 if part.n - r0 < shape.at_once else shape.at_once
        low = get_i64(buffers.positions + 8 * r0)  # first position of these rows
        high = get_i64(buffers.positions + 8 * (r0 + n_rows - 1))
        begin, to = seen_of(part, low, high, chunk, chunk_end, window)
        if begin < to:
            from_span, to_span = begin // span * span, (to + span - 1) // span * span
            for i in range(from_span, to_span, span):
                query, key = buffers.queries + 4 * shape.k_width * r0, buffers.keys + 4 * i * shape.k_dim
                add_scores(
                    query, 4 * shape.k_width, key, 64 * shape.k_dim, shape.k_dim, buffers.weights + 4 * i, total,
                    vectors,
                )  # fmt: skip
            masked = to_span > to or to_span > end_of(low, window, length) - chunk
            masked = masked or from_span < begin or first_of(high, window, length) - chunk > from_span
            highest_place = buffers.maxima + 64 * (r0 // rows)
            for r in range(n_rows):
                position = get_i64(buffers.positions + 8 * (r0 + r))
                first, last = first_of(position, window, length) - chunk, end_of(position, window, length) - chunk
                row = part.row0 + r0 + r
                query_head = part.head * shape.group + row % shape.group
                added = query_head * bias.stride + bias.zero + chunk - position
                if is_chosen:
                    added = (part.token + row // shape.group) * bias.stride + chunk
                top = finish_scores(
                    buffers.weights + WEIGHT_STRIDE * r, from_span, to_span, masked,
                    first if first > begin else begin, last if last < to else to, capping,
                    bias.table + 4 * added,
                )  # fmt: skip
                put_f32(shrinks + 4 * r, top)
            highest = maximum(load_f32(highest_place), load_f32(shrinks))
            store_f32(shrinks, power_of_two(load_f32(highest_place) - highest))
            store_f32(highest_place, highest)
            for r in range(n_rows):
                position = get_i64(buffers.positions + 8 * (r0 + r))
                first, last = first_of(position, window, length) - chunk, end_of(position, window, length) - chunk
                added = weigh(
                    buffers.weights + WEIGHT_STRIDE * r, from_span, to_span, masked,
                    first if first > begin else begin, last if last < to else to,
                    splat_f32(get_f32(highest_place + 4 * r)),
                )  # fmt: skip
                place = buffers.sums + 64 * (r0 + r)
                store_f32(place, fma(load_f32(place), splat_f32(get_f32(shrinks + 4 * r)), added))
            add_values(
                buffers.weights, begin, to, buffers.values, 64 * CHUNK, shape.v_width,
                buffers.outputs + 4 * r0 * shape.v_width, shrinks, total, vectors,
            )  # fmt: skip

    return attend_rows
