"""Attention over the paged cache, in one pass: a running maximum and sum for each query (Dao et al. 2022,
arXiv:2205.14135).

The queries of a sequence that read one key head are rows: row ``i`` is head ``i % group`` of that key head's group
at token ``i // group``. A thread takes up to ROWS of them, decodes CHUNK positions of the cache at a time, and goes
over these with a few rows in registers: scores (lanes are positions), weights, then values (lanes are columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.isa import current
from pumice_cpu.kernels.common import inline, load_up_to, next_part, part_start, store_up_to, transpose
from pumice_cpu.kernels.elementwise import tanh
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.kv_cache import CHUNK, ROWS
from pumice_cpu.simd import (
    between,
    bits_f32,
    fma,
    get_f32,
    get_i32,
    get_i64,
    keep_first,
    load_f32,
    max_lanes,
    maximum,
    power_of_two,
    put_f32,
    put_i64,
    registers_f32,
    splat_f32,
    store_f32,
    sum_lanes,
)

WIDTH = 2 if current().tokens > 4 else 1  # vectors of positions, or of columns, beside the rows in registers
LOWEST = np.float32(-1e38)  # below any score, but finite, so that differences are numbers
LOG2_E = np.float32(1.4426950408889634)  # scores are kept times this: weights are powers of two


@inline
def zero():
    return splat_f32(np.float32(0))


@inline
def transpose_stored(source, y, registers, spare):
    """16 vectors to what are their columns. ``y`` is as ``source``, 64 bytes apart."""
    for i in range(16):
        registers[i] = load_f32(source + 64 * i)
    transpose(registers, spare)
    for i in range(16):
        store_f32(y + 64 * i, registers[i])


@inline
def first_seen(position, window):
    """The first position that a query attends to."""
    return position - window + 1 if window != 0 and position >= window else np.int64(0)


def attend(kv_type: str, n_rows: str, cells: str, scores: str) -> Any:
    """A kernel that attends with every query of the batch, ``n_rows`` at a time in registers.

    ``cells`` is ``tiles`` if blocks of the cache are whole tiles, else ``any``. A score is ``scale * q . k``; where
    ``scores`` is ``capped``, ``cap * tanh`` of it; in units of ln 2.

    ``positions``, ``seq_starts``, ``n_seqs`` and ``table`` are places in the step block. A part of the work is up to
    ROWS queries of a key head at positions of one multiple of ``part_size``, of which ``chunk_size``, at most CHUNK,
    are decoded at a time. With ``partial`` 0 there is one part and the result is final; else the step has one token,
    and ``merge`` makes the result of what is left at ``partial``. ``at_once`` is ``n_rows``: a number that LLVM does
    not know, where loops are not to be unrolled.

    The other addresses are scratch memory, of each thread: ``queries [ROWS, k_width]``,
    ``keys [chunk_size / 16, k_dim, 16]``, ``columns [v_width, 16]``, ``values [v_width / 16, chunk_size, 16]``,
    ``weights [n_rows, CHUNK + 16]``, ``outputs [ROWS / n_rows, v_width / 16, n_rows, 16]``, ``sums [ROWS, 16]``,
    ``maxima [ROWS / n_rows, 16]`` and int64 ``places [ROWS]``, the positions. ``k_width`` and ``v_width`` are ``k_dim``
    and ``v_dim`` filled up to multiples of 32.
    """
    read_tile, rows, width, is_capped = tile_reader(kv_type, cells), int(n_rows), WIDTH, scores == "capped"
    n_total, span, weight_stride = rows * width, 16 * WIDTH, 4 * (CHUNK + 16)

    @inline
    def add_scores(query, stride, keys, key_stride, k_dim, weights, total, vectors):
        """Products of the rows at ``query`` with 16 * width positions."""
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
                store_f32(weights + weight_stride * r + 64 * w, total[r * width + w])

    @inline
    def finish_scores(weights, begin, end, masked, first, last, cap):
        """The largest of a row's scores, of which those from ``first`` to ``last`` count."""
        top = splat_f32(LOWEST)
        for i in range(begin, end, 16):
            x = load_f32(weights + 4 * i)
            if is_capped:
                x = cap * tanh(x, 0, 0)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), splat_f32(LOWEST))
            if masked or is_capped:
                store_f32(weights + 4 * i, x)
            top = maximum(top, x)
        return max_lanes(top)

    @inline
    def weigh(weights, begin, end, masked, first, last, highest):
        """Turn a row's scores into weights relative to the highest; their sum, in 16 lanes."""
        total = zero()
        for i in range(begin, end, 16):
            x = power_of_two(load_f32(weights + 4 * i) - highest)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), zero())
            store_f32(weights + 4 * i, x)
            total = total + x
        return total

    @inline
    def add_values(weights, begin, end, values, stride, v_width, outputs, shrinks, total, vectors):
        """Shrink the rows' outputs, and add the values at positions of the chunk, weighed."""
        for v in range(0, v_width // 16, width):
            for r in range(rows):
                shrink = splat_f32(get_f32(shrinks + 4 * r))
                for w in range(width):
                    total[r * width + w] = load_f32(outputs + 64 * ((v + w) * rows + r)) * shrink
            for i in range(begin, end):
                for w in range(width):
                    vectors[w] = load_f32(values + stride * (v + w) + 64 * i)
                for r in range(rows):
                    x = splat_f32(get_f32(weights + weight_stride * r + 4 * i))
                    for w in range(width):
                        total[r * width + w] = fma(x, vectors[w], total[r * width + w])
            for r in range(rows):
                for w in range(width):
                    store_f32(outputs + 64 * ((v + w) * rows + r), total[r * width + w])

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, sinks, n_head, group, scale, cap, window,
        key_cache, k_head_bytes, k_tile_bytes, k_dim, k_unit, value_cache, v_head_bytes, v_tile_bytes, v_dim, v_unit,
        part_size, partial, chunk_size, k_width, v_width, at_once,
        queries, keys, columns, values, outputs, weights, sums, maxima, places,
    ):  # fmt: skip
        queries += thread * 4 * ROWS * k_width
        keys += thread * 4 * CHUNK * k_dim
        columns += thread * 64 * v_width
        values += thread * 4 * CHUNK * v_width
        outputs += thread * 4 * ROWS * v_width
        weights += thread * weight_stride * rows
        sums += thread * 64 * ROWS
        maxima += thread * 64 * ROWS
        places += thread * 8 * ROWS
        shrinks = weights + 4 * CHUNK  # beside the first row's weights
        total, vectors = registers_f32(n_total), registers_f32(width)
        registers, spare = registers_f32(16), registers_f32(16)
        factor, capping = splat_f32(bits_f32(scale)), splat_f32(bits_f32(cap))
        starts, token_positions = get_i64(seq_starts), get_i64(positions)
        n_head_kv = n_head // group

        seq, before = np.int64(0), np.int64(0)  # parts of the sequences before this one
        item = next_part(ticket)
        while seq < get_i64(n_seqs):
            token, next_token = np.int64(get_i32(starts + 4 * seq)), np.int64(get_i32(starts + 4 * seq + 4))
            past = np.int64(get_i32(token_positions + 4 * token))  # tokens of a sequence are at successive positions
            first_part = first_seen(past, window) // part_size
            n_parts = (past + next_token - token - 1) // part_size - first_part + 1
            count = (next_token - token) * group
            n_tiles = (count + ROWS - 1) // ROWS
            if item - before >= n_tiles * n_parts * n_head_kv:
                before += n_tiles * n_parts * n_head_kv
                seq += 1
                continue
            head, rest = (item - before) % n_head_kv, (item - before) // n_head_kv
            part = first_part + rest % n_parts
            row0 = (n_tiles - 1 - rest // n_parts) * ROWS  # the longest first
            n = count - row0 if count - row0 < ROWS else ROWS
            padded = (n + rows - 1) // rows * rows
            blocks = get_i64(table) + 4 * seq * get_i64(table + 8)

            for r in range(padded):
                row = row0 + r if r < n else row0 + n - 1  # filled up with the last row
                query_head = head * group + row % group
                source = q + 4 * k_dim * ((token + row // group) * n_head + query_head)
                for i in range(0, k_dim, 16):
                    store_f32(queries + 4 * (r * k_width + i), load_up_to(source + 4 * i, k_dim - i) * factor)
                put_i64(places + 8 * r, past + row // group)
                top, total_lanes = LOWEST, np.int32(0)
                if sinks != 0 and part == first_part:
                    top, total_lanes = get_f32(sinks + 4 * query_head) * LOG2_E, np.int32(1)
                put_f32(maxima + 64 * (r // rows) + 4 * (r % rows), top)
                store_f32(sums + 64 * r, keep_first(splat_f32(np.float32(1)), total_lanes))
            for i in range(padded * v_width // 16):
                store_f32(outputs + 64 * i, zero())

            end = get_i64(places + 8 * n - 8) + 1
            end = end if end < (part + 1) * part_size else (part + 1) * part_size
            first = first_seen(get_i64(places), window)
            first = first if first > part * part_size else part * part_size
            for chunk in range(first & ~15, end, chunk_size):
                chunk_end = end - chunk if end - chunk < chunk_size else chunk_size
                for i in range(0, chunk_end, 16):
                    source = keys + 4 * i * k_dim
                    read_tile(
                        key_cache + head * k_head_bytes, blocks, chunk + i, first, end, block_size, k_tile_bytes,
                        k_dim, k_unit, source,
                    )  # fmt: skip
                    if value_cache != 0:
                        source = columns
                        read_tile(
                            value_cache + head * v_head_bytes, blocks, chunk + i, first, end, block_size, v_tile_bytes,
                            v_dim, v_unit, source,
                        )  # fmt: skip
                    for v in range((v_dim + 15) // 16):
                        transpose_stored(source + 1024 * v, values + 64 * (v * chunk_size + i), registers, spare)
                for r0 in range(0, n, at_once):
                    here = n - r0 if n - r0 < at_once else at_once
                    low = get_i64(places + 8 * r0) - chunk  # in the chunk, the first position of these rows
                    high = get_i64(places + 8 * (r0 + here - 1)) - chunk
                    begin = first - chunk if first > chunk else np.int64(0)
                    begin = low - window + 1 if window != 0 and low - window + 1 > begin else begin
                    to = high + 1 if high + 1 < chunk_end else chunk_end
                    if begin >= to:
                        continue
                    from_span, to_span = begin // span * span, (to + span - 1) // span * span
                    for i in range(from_span, to_span, span):
                        query, key = queries + 4 * k_width * r0, keys + 4 * i * k_dim
                        add_scores(query, 4 * k_width, key, 64 * k_dim, k_dim, weights + 4 * i, total, vectors)
                    masked = to_span > to or to_span > low + 1 or from_span < begin
                    masked = masked or (window != 0 and high - window + 1 > from_span)
                    maximum_place = maxima + 64 * (r0 // rows)
                    for r in range(here):
                        last = get_i64(places + 8 * (r0 + r)) + 1 - chunk
                        top = finish_scores(
                            weights + weight_stride * r, from_span, to_span, masked,
                            last - window if window != 0 and last - window > begin else begin,
                            last if last < to else to, capping,
                        )  # fmt: skip
                        put_f32(shrinks + 4 * r, top)
                    highest = maximum(load_f32(maximum_place), load_f32(shrinks))
                    store_f32(shrinks, power_of_two(load_f32(maximum_place) - highest))
                    store_f32(maximum_place, highest)
                    for r in range(here):
                        last = get_i64(places + 8 * (r0 + r)) + 1 - chunk
                        added = weigh(
                            weights + weight_stride * r, from_span, to_span, masked,
                            last - window if window != 0 and last - window > begin else begin,
                            last if last < to else to, splat_f32(get_f32(maximum_place + 4 * r)),
                        )  # fmt: skip
                        place = sums + 64 * (r0 + r)
                        store_f32(place, fma(load_f32(place), splat_f32(get_f32(shrinks + 4 * r)), added))
                    add_values(
                        weights, begin, to, values, 64 * chunk_size, v_width,
                        outputs + 4 * r0 * v_width, shrinks, total, vectors,
                    )  # fmt: skip

            for r in range(n):
                row = row0 + r
                query_head = head * group + row % group
                source = outputs + 4 * (r // rows) * rows * v_width + 64 * (r % rows)
                if partial != 0:
                    place = partial + 4 * ((part - first_part) * n_head + query_head) * (v_width + 16)
                    put_f32(place, sum_lanes(load_f32(sums + 64 * r)))
                    put_f32(place + 4, get_f32(maxima + 64 * (r // rows) + 4 * (r % rows)))
                    for v in range(v_width // 16):
                        store_f32(place + 64 * v + 64, load_f32(source + 64 * rows * v))
                else:
                    place = y + 4 * v_dim * ((token + row // group) * n_head + query_head)
                    inverse = splat_f32(np.float32(1) / sum_lanes(load_f32(sums + 64 * r)))
                    for v in range((v_dim + 15) // 16):
                        store_up_to(place + 64 * v, load_f32(source + 64 * rows * v) * inverse, v_dim - 16 * v)
            item = next_part(ticket)

    return kernel


def merge(thread, n_threads, positions, y, n_head, window, part_size, partial, v_dim, v_width):
    """What parts of the positions left for the one token of a step, added in their order."""
    past = np.int64(get_i32(get_i64(positions)))
    n_parts = past // part_size - first_seen(past, window) // part_size + 1
    stride = 4 * n_head * (v_width + 16)
    for head in range(part_start(n_head, thread, n_threads), part_start(n_head, thread + 1, n_threads)):
        source = partial + 4 * head * (v_width + 16)
        highest = LOWEST
        for part in range(n_parts):
            top = get_f32(source + stride * part + 4)
            highest = top if top > highest else highest
        total = zero()
        for part in range(n_parts):
            shrink = power_of_two(splat_f32(get_f32(source + stride * part + 4) - highest))
            total = fma(splat_f32(get_f32(source + stride * part)), shrink, total)
        for v in range((v_dim + 15) // 16):
            added = zero()
            for part in range(n_parts):
                shrink = power_of_two(splat_f32(get_f32(source + stride * part + 4) - highest))
                added = fma(load_f32(source + stride * part + 64 * v + 64), shrink, added)
            store_up_to(y + 4 * (head * v_dim + 16 * v), added / total, v_dim - 16 * v)
