"""Attention to the keys and values that another graph stored, all of which every query sees, read where they lie.

Lanes are positions: scores and sums of weighted values of 16 positions stay apart, and the lanes are added at the end
of the memory. So nothing is decoded or transposed, and a query's result does not depend on those beside it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import LOWEST, Sequences, Shape, item_finder, layout_at, zero
from pumice_cpu.kernels.common import inline, transpose
from pumice_cpu.kernels.kv_cache import LOAD, cell_of
from pumice_cpu.kv_cache import MEMORY_CHUNK as CHUNK
from pumice_cpu.kv_cache import MEMORY_ROWS, CacheType, memory_scratch_at
from pumice_cpu.simd import (
    between,
    bits_f32,
    fma,
    get_f32,
    get_i64,
    load_f32,
    max_lanes,
    maximum,
    power_of_two,
    prefetch,
    put_f32,
    put_i64,
    registers_f32,
    splat_f32,
    store_f32,
    sum_lanes,
)

TILES = 4  # of values whose weights are in registers; as many are prefetched
CHAINS = 4  # of a score, added at its end

layout = inline(memory_scratch_at)


@inline
def prepare(shape, part, buffers, q, factor, row0, rows):
    """Store scaled queries and where they are from, and begin their softmax."""
    for r in range(rows):
        row = part.row0 + row0 + r
        place = (part.token + row // shape.group) * shape.n_head + part.head * shape.group + row % shape.group
        put_i64(buffers.rows + 8 * r, place)
        for i in range(0, shape.k_dim, 16):
            query = load_f32(q + 4 * (place * shape.k_dim + i))
            store_f32(buffers.queries + 4 * (r * shape.k_dim + i), query * factor)
        put_f32(buffers.maxima + 4 * r, LOWEST)
        store_f32(buffers.sums + 64 * r, zero())
        for i in range(shape.v_dim):
            store_f32(buffers.outputs + 64 * (r * shape.v_dim + i), zero())


@inline
def find_tiles(cells, part, chunk, end, block_size, tiles):
    """Write the addresses of the tiles of a chunk; those up to a multiple of ``TILES`` are the last one."""
    head = cells.cache + part.head * cells.head_bytes
    for i in range((end - chunk + 16 * TILES - 1) // (16 * TILES) * TILES):
        position = chunk + 16 * i if chunk + 16 * i < end else (end - 1) // 16 * 16
        put_i64(tiles + 8 * i, head + (cell_of(part.blocks, position, block_size) >> 4) * cells.tile_bytes)


@functools.cache
def score_adder(kv_type: str, rows: int) -> Any:
    """Return a function that stores the scores of rows, and updates their maxima, for the positions of a chunk."""
    load, column_bytes = LOAD[kv_type], CacheType.of(kv_type).code_bytes

    @inline
    def add_scores(shape, buffers, tiles, count, total, vectors, tops):
        """``count``: positions of the chunk."""
        for r in range(rows):
            tops[r] = splat_f32(LOWEST)
        for tile in range(0, count, 16):
            key = get_i64(tiles + tile // 2)
            for i in range(CHAINS * rows):
                total[i] = zero()
            for column in range(0, shape.k_dim, CHAINS):
                for line in range(0, CHAINS * column_bytes, 64):
                    prefetch(key + column_bytes * (column + TILES * shape.k_dim) + line)
                for i in range(CHAINS):
                    vectors[i] = load(key + column_bytes * (column + i))
                for r in range(rows):
                    for i in range(CHAINS):
                        x = splat_f32(get_f32(buffers.queries + 4 * (r * shape.k_dim + column + i)))
                        total[CHAINS * r + i] = fma(x, vectors[i], total[CHAINS * r + i])
            for r in range(rows):
                first, second = CHAINS * r, CHAINS * r + 2
                score = (total[first] + total[first + 1]) + (total[second] + total[second + 1])
                if count - tile < 16:
                    score = between(score, np.int32(0), np.int32(count - tile), splat_f32(LOWEST))
                store_f32(buffers.weights + 4 * (r * CHUNK + tile), score)
                tops[r] = maximum(tops[r], score)

    return add_scores


@inline
def weigh(shape, buffers, r, count, top):
    """Replace a row's scores by weights, and scale its results for a higher maximum."""
    before = get_f32(buffers.maxima + 4 * r)
    highest = top if top > before else before
    put_f32(buffers.maxima + 4 * r, highest)
    shrink, added = power_of_two(splat_f32(before - highest)), zero()
    for tile in range(0, count, 16):
        place = buffers.weights + 4 * (r * CHUNK + tile)
        weight = power_of_two(load_f32(place) - splat_f32(highest))
        if count - tile < 16:
            weight = between(weight, np.int32(0), np.int32(count - tile), zero())
        store_f32(place, weight)
        added = added + weight
    for tile in range((count + 15) // 16 * 16, (count + 16 * TILES - 1) // (16 * TILES) * 16 * TILES, 16):
        store_f32(buffers.weights + 4 * (r * CHUNK + tile), zero())
    store_f32(buffers.sums + 64 * r, fma(load_f32(buffers.sums + 64 * r), shrink, added))
    if before < highest:
        for i in range(shape.v_dim):
            place = buffers.outputs + 64 * (r * shape.v_dim + i)
            store_f32(place, load_f32(place) * shrink)


@functools.cache
def value_adder(kv_type: str, rows: int) -> Any:
    """Return a function that adds weighted values of a chunk to the results of rows."""
    load, column_bytes = LOAD[kv_type], CacheType.of(kv_type).code_bytes

    @inline
    def add_tiles(shape, buffers, tiles, tile, left, weights, vectors):
        for r in range(rows):
            for i in range(TILES):
                weights[TILES * r + i] = load_f32(buffers.weights + 4 * (r * CHUNK + tile + 16 * i))
        for column in range(shape.v_dim):
            if column_bytes * column % 64 == 0:
                for i in range(TILES):
                    prefetch(get_i64(tiles + tile // 2 + 8 * i) + column_bytes * (column + TILES * shape.v_dim))
            for i in range(TILES):
                value = load(get_i64(tiles + tile // 2 + 8 * i) + column_bytes * column)
                if left < 16 * TILES:  # what lies behind the last position may be no number
                    value = between(value, np.int32(0), np.int32(left - 16 * i), zero())
                vectors[i] = value
            for r in range(rows):
                to = buffers.outputs + 64 * (r * shape.v_dim + column)
                total = load_f32(to)
                for i in range(TILES):
                    total = fma(weights[TILES * r + i], vectors[i], total)
                store_f32(to, total)

    @inline
    def add_values(shape, buffers, tiles, count, weights, vectors):
        for tile in range(0, count, 16 * TILES):
            if count - tile < 16 * TILES:
                add_tiles(shape, buffers, tiles, tile, count - tile, weights, vectors)
            else:
                add_tiles(shape, buffers, tiles, tile, np.int64(16 * TILES), weights, vectors)

    return add_values


@inline
def finish(shape, buffers, y, r, registers, spare):
    """Add the lanes of a row's results, and divide them by the sum of the weights."""
    inverse = splat_f32(np.float32(1) / sum_lanes(load_f32(buffers.sums + 64 * r)))
    place = y + 4 * get_i64(buffers.rows + 8 * r) * shape.v_dim
    for column in range(0, shape.v_dim, 16):
        for i in range(16):
            registers[i] = load_f32(buffers.outputs + 64 * (r * shape.v_dim + column + i))
        transpose(registers, spare)
        for half in (8, 4, 2, 1):
            for i in range(half):
                registers[i] = registers[i] + registers[i + half]
        store_f32(place + 4 * column, registers[0] * inverse)


@functools.cache
def rows_function(kv_type: str, rows: int) -> Any:
    """Return a function that attends with ``rows`` queries to the whole memory."""
    add_scores, add_values = score_adder(kv_type, rows), value_adder(kv_type, rows)

    @inline
    def attend_rows(
        shape, part, buffers, q, y, factor, row0, keys, values, block_size, total, vectors, tops, registers, spare
    ):
        prepare(shape, part, buffers, q, factor, row0, rows)
        for chunk in range(0, part.end, CHUNK):
            count = part.end - chunk if part.end - chunk < CHUNK else np.int64(CHUNK)
            find_tiles(keys, part, chunk, chunk + count, block_size, buffers.key_tiles)
            find_tiles(values, part, chunk, chunk + count, block_size, buffers.value_tiles)
            add_scores(shape, buffers, buffers.key_tiles, count, total, vectors, tops)
            for r in range(rows):
                weigh(shape, buffers, r, count, max_lanes(tops[r]))
            add_values(shape, buffers, buffers.value_tiles, count, total, vectors)
        for r in range(rows):
            finish(shape, buffers, y, r, registers, spare)

    return attend_rows


def attend(kv_type: str) -> Any:
    """Return a kernel of attention to a memory. Arguments as in ``attention.attend``; widths are multiples of 16.

    ``scratch`` is of ``memory_scratch_at``.
    """
    rows, chains, n_total, find_item = MEMORY_ROWS, CHAINS, MEMORY_ROWS * CHAINS, item_finder("near")
    attend_several, attend_one = rows_function(kv_type, MEMORY_ROWS), rows_function(kv_type, 1)

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, n_head, group, scale, keys, values, lengths, part_size, scratch,
    ):  # fmt: skip
        total, vectors, tops = registers_f32(n_total), registers_f32(chains), registers_f32(rows)
        registers, spare = registers_f32(16), registers_f32(16)
        key_cells, value_cells = layout_at(keys), layout_at(values)
        k_dim, v_dim = key_cells.dim, value_cells.dim
        shape = Shape(n_head, group, k_dim, v_dim, k_dim, v_dim, 0, part_size, MEMORY_ROWS)
        buffers = layout(scratch + thread * layout(0, k_dim, v_dim).end, k_dim, v_dim)
        factor, sequences = splat_f32(bits_f32(scale)), Sequences(n_seqs, seq_starts, positions, lengths, table)
        seq, before, part = find_item(shape, ticket, np.int64(0), np.int64(0), sequences, n_threads)
        while part.n > 0:
            row = np.int64(0)
            while part.n - row >= MEMORY_ROWS:
                attend_several(
                    shape, part, buffers, q, y, factor, row, key_cells, value_cells, block_size,
                    total, vectors, tops, registers, spare,
                )  # fmt: skip
                row += MEMORY_ROWS
            while row < part.n:
                attend_one(
                    shape, part, buffers, q, y, factor, row, key_cells, value_cells, block_size,
                    total, vectors, tops, registers, spare,
                )  # fmt: skip
                row += 1
            seq, before, part = find_item(shape, ticket, seq, before, sequences, n_threads)

    return kernel
