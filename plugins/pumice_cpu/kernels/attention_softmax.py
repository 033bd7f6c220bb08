"""The running softmax of flash attention: a maximum and a sum per row, merged part by part."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from pumice_cpu.kernels.attention_parts import LOWEST, first_seen, zero
from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.kernels.elementwise import log_beyond_one
from pumice_cpu.simd import (
    bits_f32,
    f32_bits,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lane,
    load_f32,
    power_of_two,
    put_f32,
    put_i64,
    splat_f32,
    store_f32,
    sum_lanes,
)

LOG2_E = np.float32(1.4426950408889634)  # scores are scaled by this, so weights are powers of two


@inline
def sink_of(sinks, head):
    """Return a head's initial maximum and sum of weights, from its sink; ``sinks`` is 0 without sinks."""
    return (get_f32(sinks + 4 * head) * LOG2_E, np.float32(1)) if sinks != 0 else (LOWEST, np.float32(0))


@inline
def merge_factors(before, top):
    """Return the maximum of two maxima, and the factors that rescale sums and outputs relative to each."""
    highest = top if top > before else before
    return highest, power_of_two(splat_f32(before - highest)), power_of_two(splat_f32(top - highest))


@inline
def log_of_sum(highest, total):
    """Return the natural logarithm of ``total * 2**highest``; ``total`` is a normal float."""
    bits = f32_bits(total)
    beyond_one = bits_f32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)) - np.float32(1)
    power = (highest + np.float32((bits >> np.int32(23)) - np.int32(127))) / LOG2_E
    return lane(log_beyond_one(splat_f32(beyond_one), splat_f32(power)), 0)


class Softmax(NamedTuple):
    """The steps of a work item, as functions for kernels."""

    prepare: Any
    begin_part: Any
    end_part: Any
    finish: Any


def end_functions(rows: int) -> tuple[Any, Any]:
    """Return the functions that merge parts and store results of ``rows`` rows in registers."""

    @inline
    def end_part(shape, part, buffers):
        """Merge the softmax of PART positions into that of the positions before."""
        for r in range(part.n):
            place = 4 * (r // rows) * rows * shape.v_width + 64 * (r % rows)
            top, before = (
                get_f32(buffers.maxima + 64 * (r // rows) + 4 * (r % rows)),
                get_f32(buffers.merged_maxima + 4 * r),
            )
            highest, shrink, factor = merge_factors(before, top)
            put_f32(buffers.merged_maxima + 4 * r, highest)
            total = splat_f32(sum_lanes(load_f32(buffers.sums + 64 * r)))
            total = fma(total, factor, splat_f32(get_f32(buffers.merged_sums + 4 * r)) * shrink)
            put_f32(buffers.merged_sums + 4 * r, lane(total, 0))
            for v in range(shape.v_width // 16):
                to = place + 64 * rows * v
                added = fma(load_f32(buffers.outputs + to), factor, load_f32(buffers.merged + to) * shrink)
                store_f32(buffers.merged + to, added)

    @inline
    def finish(shape, part, buffers, y, partial, log_sum):
        """Divide the outputs by the sums of weights; or store outputs, sums and maxima for ``merge``."""
        for r in range(part.n):
            row = part.row0 + r
            query_head = part.head * shape.group + row % shape.group
            source = 4 * (r // rows) * rows * shape.v_width + 64 * (r % rows)
            if partial != 0:
                source += buffers.outputs
                place = partial + 4 * (part.number * shape.n_head + query_head) * (shape.v_width + 16)
                put_f32(place, sum_lanes(load_f32(buffers.sums + 64 * r)))
                put_f32(place + 4, get_f32(buffers.maxima + 64 * (r // rows) + 4 * (r % rows)))
                for v in range(shape.v_width // 16):
                    store_f32(place + 64 * v + 64, load_f32(source + 64 * rows * v))
            else:
                source += buffers.merged
                token = part.token + row // shape.group
                place = y + 4 * (shape.v_dim + log_sum) * (token * shape.n_head + query_head)
                inverse = splat_f32(np.float32(1) / get_f32(buffers.merged_sums + 4 * r))
                for v in range((shape.v_dim + 15) // 16):
                    store_up_to(place + 64 * v, load_f32(source + 64 * rows * v) * inverse, shape.v_dim - 16 * v)
                if log_sum:
                    total = get_f32(buffers.merged_sums + 4 * r)
                    put_f32(place + 4 * shape.v_dim, log_of_sum(get_f32(buffers.merged_maxima + 4 * r), total))

    return end_part, finish


@functools.cache
def softmax_functions(rows: int) -> Softmax:
    """Return the functions for ``rows`` rows in registers."""

    @inline
    def prepare(shape, part, buffers, q, sinks, factor):
        """Store the scaled queries, padded to ``n_rows`` by the last, and initialize the softmax with the sinks."""
        padded = (part.n + rows - 1) // rows * rows
        for r in range(padded):
            row = part.row0 + r if r < part.n else part.row0 + part.n - 1
            query_head = part.head * shape.group + row % shape.group
            source = q + 4 * shape.k_dim * ((part.token + row // shape.group) * shape.n_head + query_head)
            for i in range(0, shape.k_dim, 16):
                to = buffers.queries + 4 * (r * shape.k_width + i)
                store_f32(to, load_up_to(source + 4 * i, shape.k_dim - i) * factor)
            put_i64(buffers.positions + 8 * r, part.past + row // shape.group)
            top, total = sink_of(sinks, query_head)
            put_f32(buffers.merged_maxima + 4 * r, top)
            put_f32(buffers.merged_sums + 4 * r, total)
        for i in range(padded * shape.v_width // 16):
            store_f32(buffers.merged + 64 * i, zero())

    @inline
    def begin_part(shape, part, buffers):
        """Reset the softmax for the next PART positions."""
        padded = (part.n + rows - 1) // rows * rows
        for r in range(padded):
            put_f32(buffers.maxima + 64 * (r // rows) + 4 * (r % rows), LOWEST)
            store_f32(buffers.sums + 64 * r, zero())
        for i in range(padded * shape.v_width // 16):
            store_f32(buffers.outputs + 64 * i, zero())

    return Softmax(prepare, begin_part, *end_functions(rows))


def merge(thread, n_threads, positions, y, sinks, n_head, window, part_size, partial, v_dim, v_width, log_sum):
    """Merge the partial results of a step's only token, in the order of the positions, as ``attend`` does."""
    past = np.int64(get_i32(get_i64(positions)))
    n_parts = past // part_size - first_seen(past, window, past + 1) // part_size + 1
    stride = 4 * n_head * (v_width + 16)
    for head in range(part_start(n_head, thread, n_threads), part_start(n_head, thread + 1, n_threads)):
        source = partial + 4 * head * (v_width + 16)
        for v in range((v_dim + 15) // 16):
            highest, one = sink_of(sinks, head)
            total, added = splat_f32(one), zero()
            for part in range(n_parts):
                place = source + stride * part
                highest, shrink, factor = merge_factors(highest, get_f32(place + 4))
                total = fma(splat_f32(get_f32(place)), factor, total * shrink)
                added = fma(load_f32(place + 64 * v + 64), factor, added * shrink)
            inverse = splat_f32(np.float32(1) / lane(total, 0))
            store_up_to(y + 4 * (head * (v_dim + log_sum) + 16 * v), added * inverse, v_dim - 16 * v)
            if log_sum:
                put_f32(y + 4 * (head * (v_dim + 1) + v_dim), log_of_sum(highest, lane(total, 0)))
