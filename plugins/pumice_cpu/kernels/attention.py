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
from pumice_cpu.kernels.common import inline, load_up_to, next_part, part_start, store_up_to
from pumice_cpu.kernels.elementwise import tanh
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.kv_cache import CHUNK, ROWS
from pumice_cpu.simd import (
    between,
    bits_f32,
    exp,
    fma,
    get_f32,
    get_i32,
    get_i64,
    interleave_high,
    interleave_low,
    keep_first,
    lane,
    load_f32,
    max_lanes,
    maximum,
    put_f32,
    registers_f32,
    splat_f32,
    store_f32,
    sum_lanes,
)

WIDTH = 2 if current().tokens > 4 else 1  # vectors of positions, or of columns, beside the rows in registers
LOWEST = np.float32(-1e38)  # of a score that no query has; finite, so that differences are numbers


@inline
def zero():
    return splat_f32(np.float32(0))


@inline
def transpose(source, y, stride, registers, spare):
    """16 vectors at ``source``, one after the other, to 16 columns ``stride`` bytes apart: four perfect shuffles."""
    for i in range(16):
        registers[i] = load_f32(source + 64 * i)
    for _ in range(2):
        for i in range(8):
            spare[2 * i] = interleave_low(registers[i], registers[i + 8])
            spare[2 * i + 1] = interleave_high(registers[i], registers[i + 8])
        for i in range(8):
            registers[2 * i] = interleave_low(spare[i], spare[i + 8])
            registers[2 * i + 1] = interleave_high(spare[i], spare[i + 8])
    for i in range(16):
        store_f32(y + stride * i, registers[i])


def attend(kv_type: str, n_rows: str) -> Any:
    """A kernel that attends with every query of the batch, ``n_rows`` at a time in registers.

    ``positions``, ``seq_starts``, ``n_seqs`` and ``table`` are places in the step block. A part of the work is up to
    ROWS queries of a key head at positions of one multiple of ``part_size``. With ``partial`` 0 there is one part and
    the result is final; else the step has one token, and ``merge`` makes the result of what is left at ``partial``.
    The other addresses are scratch memory, of each thread: ``queries [ROWS, k_dim]``, ``keys [CHUNK / 16, k_dim, 16]``,
    ``columns [v_width, 16]``, ``values [v_width / 16, CHUNK, 16]``, ``weights [n_rows, CHUNK + 16]``,
    ``outputs [ROWS / n_rows, v_width / 16, n_rows, 16]``, and ``state [ROWS, 32]`` with each row's sum (in 16 lanes)
    and maximum; ``v_width`` is ``v_dim`` filled up to a multiple of 32.
    """
    read_tile, rows, width = tile_reader(kv_type), int(n_rows), WIDTH
    n_total, span = rows * width, 16 * WIDTH
    weight_stride, row_bytes = 4 * (CHUNK + 16), 128

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
    def weigh(weights, begin, end, masked, first, last, softcap, row):
        """Turn a row's scores into weights relative to its maximum so far. At ``row``: sum, maximum, and how much
        what was added before is to shrink.
        """
        top = splat_f32(LOWEST)
        for i in range(begin, end, 16):
            x = load_f32(weights + 4 * i)
            if softcap != np.float32(0):
                cap = splat_f32(softcap)
                x = cap * tanh(x / cap, 0, 0)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), splat_f32(LOWEST))
            store_f32(weights + 4 * i, x)
            top = maximum(top, x)
        before, highest = get_f32(row + 64), max_lanes(top)
        shrink = np.float32(1)
        if highest > before:
            put_f32(row + 64, highest)
            shrink = lane(exp(splat_f32(before - highest)), 0)
        else:
            highest = before
        put_f32(row + 68, shrink)
        total = load_f32(row) * splat_f32(shrink)
        for i in range(begin, end, 16):
            x = exp(load_f32(weights + 4 * i) - splat_f32(highest))
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), zero())
            store_f32(weights + 4 * i, x)
            total = total + x
        store_f32(row, total)

    @inline
    def add_values(weights, begin, end, values, v_width, outputs, state, total, vectors):
        """Add the values at positions of the chunk, weighed, to the rows' outputs."""
        for v in range(0, v_width // 16, width):
            for r in range(rows):
                shrink = splat_f32(get_f32(state + row_bytes * r + 68))
                for w in range(width):
                    total[r * width + w] = load_f32(outputs + 64 * ((v + w) * rows + r)) * shrink
            for i in range(begin, end):
                for w in range(width):
                    vectors[w] = load_f32(values + 64 * ((v + w) * CHUNK + i))
                for r in range(rows):
                    x = splat_f32(get_f32(weights + weight_stride * r + 4 * i))
                    for w in range(width):
                        total[r * width + w] = fma(x, vectors[w], total[r * width + w])
            for r in range(rows):
                for w in range(width):
                    store_f32(outputs + 64 * ((v + w) * rows + r), total[r * width + w])

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, sinks, n_head, group, scale, softcap, window,
        key_cache, k_head_bytes, k_tile_bytes, k_dim, k_unit, value_cache, v_head_bytes, v_tile_bytes, v_dim, v_unit,
        part_size, partial, v_width, queries, keys, columns, values, outputs, state, weights,
    ):  # fmt: skip
        queries += thread * 4 * ROWS * k_dim
        keys += thread * 4 * CHUNK * k_dim
        columns += thread * 64 * v_width
        values += thread * 4 * CHUNK * v_width
        outputs += thread * 4 * ROWS * v_width
        state += thread * row_bytes * ROWS
        weights += thread * weight_stride * rows
        total, vectors = registers_f32(n_total), registers_f32(width)
        registers, spare = registers_f32(16), registers_f32(16)
        factor, cap = splat_f32(bits_f32(scale)), bits_f32(softcap)
        starts, token_positions = get_i64(seq_starts), get_i64(positions)
        n_head_kv = n_head // group

        seq, before = np.int64(0), np.int64(0)  # items of the sequences before this one
        item = next_part(ticket)
        while seq < get_i64(n_seqs):
            token, next_token = np.int64(get_i32(starts + 4 * seq)), np.int64(get_i32(starts + 4 * seq + 4))
            past = np.int64(get_i32(token_positions + 4 * token))  # tokens of a sequence are at successive positions
            oldest = past - window + 1 if window != 0 and past >= window else np.int64(0)
            first_part = oldest // part_size
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
            blocks = get_i64(table) + 4 * seq * get_i64(table + 8)

            for r in range((n + rows - 1) // rows * rows):
                inside = r if r < n else n - 1  # filled up with the last row
                query_head = head * group + (row0 + inside) % group
                source = q + 4 * k_dim * ((token + (row0 + inside) // group) * n_head + query_head)
                for i in range(0, k_dim, 16):
                    place = queries + 4 * (r * k_dim + i)
                    store_up_to(place, load_up_to(source + 4 * i, k_dim - i) * factor, k_dim - i)
                row = state + row_bytes * r
                if sinks != 0 and part == first_part:
                    store_f32(row, keep_first(splat_f32(np.float32(1)), np.int32(1)))
                    put_f32(row + 64, get_f32(sinks + 4 * query_head))
                else:
                    store_f32(row, zero())
                    put_f32(row + 64, LOWEST)
            for i in range((n + rows - 1) // rows * rows * v_width // 16):
                store_f32(outputs + 64 * i, zero())

            last = past + (row0 + n - 1) // group  # position of the last row
            end = last + 1 if last + 1 < (part + 1) * part_size else (part + 1) * part_size
            first = past + row0 // group - window + 1 if window != 0 else np.int64(0)
            first = first if first > part * part_size else part * part_size
            for chunk in range(first & ~15, end, CHUNK):
                chunk_end = end - chunk if end - chunk < CHUNK else np.int64(CHUNK)
                for i in range(0, chunk_end, 16):
                    read_tile(
                        key_cache + head * k_head_bytes, blocks, chunk + i, first, end, block_size, k_tile_bytes,
                        k_dim, k_unit, keys + 4 * i * k_dim,
                    )  # fmt: skip
                    source = keys + 4 * i * k_dim
                    if value_cache != 0:
                        source = columns
                        read_tile(
                            value_cache + head * v_head_bytes, blocks, chunk + i, first, end, block_size, v_tile_bytes,
                            v_dim, v_unit, columns,
                        )  # fmt: skip
                    for v in range((v_dim + 15) // 16):
                        transpose(source + 1024 * v, values + 64 * (v * CHUNK + i), 64, registers, spare)
                for r0 in range(0, n, rows):
                    here = n - r0 if n - r0 < rows else np.int64(rows)
                    low = past + (row0 + r0) // group - chunk  # of the first of these rows, in the chunk
                    high = past + (row0 + r0 + here - 1) // group - chunk
                    to = high + 1 if high + 1 < chunk_end else chunk_end
                    begin = first - chunk if first > chunk else np.int64(0)
                    if window != 0 and low - window + 1 > begin:
                        begin = low - window + 1
                    if begin < to:
                        from_span, to_span = begin // span * span, (to + span - 1) // span * span
                        query, row = queries + 4 * k_dim * r0, state + row_bytes * r0
                        for i in range(from_span, to_span, span):
                            add_scores(
                                query,
                                4 * k_dim,
                                keys + 4 * i * k_dim,
                                64 * k_dim,
                                k_dim,
                                weights + 4 * i,
                                total,
                                vectors,
                            )
                        masked = to_span > to or to_span > low + 1 or from_span < begin
                        masked = masked or (window != 0 and high - window + 1 > from_span)
                        for r in range(here):
                            at = past + (row0 + r0 + r) // group - chunk
                            row_begin = at - window + 1 if window != 0 and at - window + 1 > begin else begin
                            row_end = at + 1 if at + 1 < to else to
                            weigh(
                                weights + weight_stride * r, from_span, to_span, masked, row_begin, row_end, cap,
                                row + row_bytes * r,
                            )  # fmt: skip
                        add_values(weights, begin, to, values, v_width, outputs + 4 * r0 * v_width, row, total, vectors)

            for r in range(n):
                query_head = head * group + (row0 + r) % group
                row = state + row_bytes * r
                source = outputs + 4 * (r // rows) * rows * v_width + 64 * (r % rows)
                if partial != 0:
                    place = partial + 4 * ((part - first_part) * n_head + query_head) * (v_width + 16)
                    put_f32(place, sum_lanes(load_f32(row)))
                    put_f32(place + 4, get_f32(row + 64))
                    for v in range(v_width // 16):
                        store_f32(place + 64 * v + 64, load_f32(source + 64 * rows * v))
                else:
                    place = y + 4 * v_dim * ((token + (row0 + r) // group) * n_head + query_head)
                    inverse = splat_f32(np.float32(1) / sum_lanes(load_f32(row)))
                    for v in range((v_dim + 15) // 16):
                        store_up_to(place + 64 * v, load_f32(source + 64 * rows * v) * inverse, v_dim - 16 * v)
            item = next_part(ticket)

    return kernel


def merge(thread, n_threads, positions, y, n_head, window, part_size, partial, v_dim, v_width):
    """What parts of the positions left for the one token of a step, added in their order."""
    past = np.int64(get_i32(get_i64(positions)))
    oldest = past - window + 1 if window != 0 and past >= window else np.int64(0)
    n_parts = past // part_size - oldest // part_size + 1
    stride = 4 * n_head * (v_width + 16)
    for head in range(part_start(n_head, thread, n_threads), part_start(n_head, thread + 1, n_threads)):
        source = partial + 4 * head * (v_width + 16)
        highest = LOWEST
        for part in range(n_parts):
            top = get_f32(source + stride * part + 4)
            highest = top if top > highest else highest
        total = zero()
        for part in range(n_parts):
            shrink = exp(splat_f32(get_f32(source + stride * part + 4) - highest))
            total = fma(splat_f32(get_f32(source + stride * part)), shrink, total)
        for v in range((v_dim + 15) // 16):
            added = zero()
            for part in range(n_parts):
                shrink = exp(splat_f32(get_f32(source + stride * part + 4) - highest))
                added = fma(load_f32(source + stride * part + 64 * v + 64), shrink, added)
            store_up_to(y + 4 * (head * v_dim + 16 * v), added / total, v_dim - 16 * v)
