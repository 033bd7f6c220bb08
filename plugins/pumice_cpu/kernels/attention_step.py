"""Attention of many queries to the keys and values of their own step, with a query in each lane.

Scores, weights and results of 16 queries are vectors, one for each position or column, so maxima and sums of weights
take no operations across lanes. Keys and values are read, value by value, from the tiles where they are stored
(kv_cache.py), and weights are computed beside the first products that need them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import (
    LOWEST,
    SEEN,
    Sequences,
    Shape,
    item_finder,
    layout_at,
    zero,
)
from pumice_cpu.kernels.common import inline, load_up_to, store_up_to, transpose
from pumice_cpu.kernels.kv_cache import begins_stored_tile, cell_of, tile_reader
from pumice_cpu.kv_cache import STEP_CHUNK as CHUNK
from pumice_cpu.kv_cache import step_scratch_at
from pumice_cpu.simd import (
    bits_f32,
    fma,
    get_f32,
    get_i64,
    load_f32,
    maximum,
    power_of_two,
    put_f32,
    put_i64,
    registers_f32,
    splat_f32,
    store_f32,
    where_negative,
)

LANES = 16  # queries
COLUMNS = (24, 16, 8, 1)  # columns of results in registers, and fewer for the last ones

layout = inline(step_scratch_at)


@inline
def hide(score, position, limits, hidden):
    """Replace the lanes of queries that do not see a position by those of ``hidden``."""
    place = splat_f32(np.float32(position))
    seen = where_negative(place - load_f32(limits), hidden, score)
    return where_negative(place - load_f32(limits + 64), seen, hidden)


def preparer(mask: str) -> Any:
    """Return a function that begins the work on an item."""
    first_of, end_of = SEEN[mask]

    @inline
    def prepare(shape, part, buffers, q, factor, registers, spare):
        """Store scaled queries, column by column, and what each sees; the last one fills up the vector."""
        for row in range(0, part.n, LANES):
            limits = buffers.limits + 8 * row
            for lane in range(LANES):
                own = part.row0 + (row + lane if row + lane < part.n else part.n - 1)
                token, position = part.token + own // shape.group, part.past + own // shape.group
                place = token * shape.n_head + part.head * shape.group + own % shape.group
                put_i64(buffers.rows + 8 * (row + lane), place)
                put_f32(limits + 4 * lane, np.float32(first_of(position, shape.window, part.length)))
                put_f32(limits + 64 + 4 * lane, np.float32(end_of(position, shape.window, part.length)))
            for column in range(0, shape.k_dim, 16):
                for lane in range(LANES):
                    source = q + 4 * (get_i64(buffers.rows + 8 * (row + lane)) * shape.k_dim + column)
                    registers[lane] = load_up_to(source, shape.k_dim - column) * factor
                transpose(registers, spare)
                for i in range(16):
                    store_f32(buffers.queries + 4 * (row * shape.k_width + LANES * (column + i)), registers[i])
            store_f32(buffers.maxima + 4 * row, splat_f32(LOWEST))
            store_f32(buffers.sums + 4 * row, zero())
            for column in range(shape.v_width):
                store_f32(buffers.outputs + 4 * (row * shape.v_width + LANES * column), zero())

    return prepare


@inline
def finish(shape, part, buffers, y, registers, spare):
    """Divide the results by the sums of weights."""
    for row in range(0, part.n, LANES):
        inverse = splat_f32(np.float32(1)) / load_f32(buffers.sums + 4 * row)
        count = part.n - row if part.n - row < LANES else LANES
        for column in range(0, shape.v_dim, 16):
            for i in range(16):
                place = buffers.outputs + 4 * (row * shape.v_width + LANES * (column + i))
                registers[i] = load_f32(place) * inverse
            transpose(registers, spare)
            for i in range(16):
                store_f32(buffers.weights + 64 * i, registers[i])
            for lane in range(count):
                to = y + 4 * (get_i64(buffers.rows + 8 * (row + lane)) * shape.v_dim + column)
                store_up_to(to, load_f32(buffers.weights + 64 * lane), shape.v_dim - column)


@functools.cache
def tile_finder() -> Any:
    """Return a function that writes the address of each tile of a chunk: where it is stored, or its copy."""
    read_tile = tile_reader("f32", "any")

    @inline
    def find_tiles(cells, part, chunk, end, block_size, copies, tiles):
        head = cells.cache + part.head * cells.head_bytes
        for i in range(chunk, end, 16):
            copy = copies + 4 * (i - chunk) * cells.dim
            if i < part.first // 16 * 16:
                place = copy
            elif begins_stored_tile(part.blocks, i, part.first, part.end, block_size):
                place = head + (cell_of(part.blocks, i, block_size) >> 4) * cells.tile_bytes
            else:
                read_tile(
                    head, part.blocks, i, part.first, part.end, block_size, cells.tile_bytes, cells.dim, cells.unit,
                    copy,
                )  # fmt: skip
                place = copy
            put_i64(tiles + (i - chunk) // 2, place)

    return find_tiles


@inline
def add_scores(query, tiles, begin, end, k_dim, weights, masked, chunk, limits, total):
    """Store the scores of 16 queries at the chunk's positions ``begin`` to ``end``; return the highest of each."""
    top = splat_f32(LOWEST)
    for tile in range(begin, end, 16):
        key = get_i64(tiles + tile // 2)
        for i in range(16):
            total[i] = zero()
        for column in range(k_dim):
            x = load_f32(query + 64 * column)
            for i in range(16):
                total[i] = fma(x, splat_f32(get_f32(key + 64 * column + 4 * i)), total[i])
        if masked:
            for i in range(16):
                total[i] = hide(total[i], chunk + tile + i, limits, splat_f32(LOWEST))
        for i in range(16):
            store_f32(weights + 64 * (tile + i), total[i])
            top = maximum(top, total[i])
    return top


@inline
def weigh(begin, end, weights, masked, chunk, limits, highest):
    """Replace scores by weights, zero where a query does not see the position; return their sums."""
    added = zero()
    for i in range(begin, end):
        weight = power_of_two(load_f32(weights + 64 * i) - highest)
        if masked:
            weight = hide(weight, chunk + i, limits, zero())
        store_f32(weights + 64 * i, weight)
        added = added + weight
    return added


@functools.cache
def value_adder(columns: int, weighs: bool) -> Any:
    """Return a function that adds weighted values of some columns; ``weighs``: it first computes the weights."""

    @inline
    def add_columns(tiles, begin, end, weights, column, outputs, highest, shrink, total):
        """Return the sums of the weights, if they are computed."""
        added = zero()
        for c in range(columns):
            total[c] = zero()
        for tile in range(begin, end, 16):
            place = get_i64(tiles + tile // 2) + 64 * column
            for i in range(16 if tile + 16 < end else end - tile):
                weight = load_f32(weights + 64 * (tile + i))
                if weighs:
                    weight = power_of_two(weight - highest)
                    store_f32(weights + 64 * (tile + i), weight)
                    added = added + weight
                for c in range(columns):
                    total[c] = fma(weight, splat_f32(get_f32(place + 64 * c + 4 * i)), total[c])
        for c in range(columns):
            to = outputs + 64 * (column + c)
            store_f32(to, fma(load_f32(to), shrink, total[c]))
        return added

    return add_columns


@functools.cache
def group_function(mask: str) -> Any:
    """Return a function that attends with 16 queries to the positions of a chunk."""
    (first_of, end_of), (wide, half, eight, one) = SEEN[mask], (value_adder(columns, False) for columns in COLUMNS)
    first_wide, first_half = value_adder(24, True), value_adder(16, True)

    @inline
    def attend_group(shape, part, buffers, row, chunk, chunk_end, total):
        limits, last = buffers.limits + 8 * row, (row + LANES if row + LANES < part.n else part.n) - 1
        low, high = part.past + (part.row0 + row) // shape.group, part.past + (part.row0 + last) // shape.group
        first = first_of(low, shape.window, part.length) - chunk
        begin = (first if first > part.first - chunk else part.first - chunk) // 16 * 16
        begin = begin if begin > 0 else np.int64(0)
        end = end_of(high, shape.window, part.length) - chunk
        end = end if end < chunk_end else chunk_end
        if begin >= end:
            return
        masked = begin + chunk < first_of(high, shape.window, part.length)
        masked = masked or begin + chunk < part.first
        masked = masked or (end + 15) // 16 * 16 + chunk > end_of(low, shape.window, part.length)
        query, weights = buffers.queries + 4 * row * shape.k_width, buffers.weights
        top = add_scores(query, buffers.key_tiles, begin, end, shape.k_dim, weights, masked, chunk, limits, total)
        before = load_f32(buffers.maxima + 4 * row)
        highest = maximum(before, top)
        shrink = power_of_two(before - highest)
        outputs, tiles = buffers.outputs + 4 * row * shape.v_width, buffers.value_tiles
        column, v_dim, by_wide = np.int64(0), shape.v_dim, shape.v_dim % 24 == 0
        if masked or v_dim < 16:
            added = weigh(begin, end, weights, masked, chunk, limits, highest)
        elif by_wide:
            added = first_wide(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 24
        else:
            added = first_half(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 16
        while by_wide and column < v_dim:
            wide(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 24
        while v_dim - column >= 16:
            half(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 16
        while v_dim - column >= 8:
            eight(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 8
        while column < v_dim:
            one(tiles, begin, end, weights, column, outputs, highest, shrink, total)
            column += 1
        sums = buffers.sums + 4 * row
        store_f32(sums, fma(load_f32(sums), shrink, added))
        store_f32(buffers.maxima + 4 * row, highest)

    return attend_group


def attend(mask: str) -> Any:
    """Return a kernel of attention within the sequences of a step; ``mask``: a key of SEEN.

    Arguments as in ``attention.attend``; ``scratch`` is of ``step_scratch_at``.
    """
    prepare, attend_group = preparer(mask), group_function(mask)
    find_item, find_tiles = item_finder(mask), tile_finder()

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, n_head, group, scale, window, keys, values, v_dim, part_size, scratch,
    ):  # fmt: skip
        total, registers, spare = registers_f32(24), registers_f32(16), registers_f32(16)
        key_cells, value_cells = layout_at(keys), layout_at(values)
        k_dim, v_width = key_cells.dim, (v_dim + 15) // 16 * 16
        shape = Shape(n_head, group, k_dim, v_dim, (k_dim + 15) // 16 * 16, v_width, window, part_size, LANES)
        buffers = layout(scratch + thread * layout(0, k_dim, v_dim).end, k_dim, v_dim)
        factor, sequences = splat_f32(bits_f32(scale)), Sequences(n_seqs, seq_starts, positions, 0, table)
        seq, before, part = find_item(shape, ticket, np.int64(0), np.int64(0), sequences, n_threads)
        while part.n > 0:
            prepare(shape, part, buffers, q, factor, registers, spare)
            for chunk in range(part.first // CHUNK * CHUNK, part.end, CHUNK):
                chunk_end = part.end - chunk if part.end - chunk < CHUNK else np.int64(CHUNK)
                find_tiles(key_cells, part, chunk, chunk + chunk_end, block_size, buffers.keys, buffers.key_tiles)
                find_tiles(value_cells, part, chunk, chunk + chunk_end, block_size, buffers.values, buffers.value_tiles)
                for row in range(0, part.n, LANES):
                    attend_group(shape, part, buffers, row, chunk, chunk_end, total)
            finish(shape, part, buffers, y, registers, spare)
            seq, before, part = find_item(shape, ticket, seq, before, sequences, n_threads)

    return kernel
