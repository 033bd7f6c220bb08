"""Writing tokens into the paged cache, and reading tiles of it; kv_cache.py has its layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, part_start
from pumice_cpu.kv_cache import BLOCK
from pumice_cpu.simd import (
    absolute,
    get_f16,
    get_f32,
    get_i8,
    get_i32,
    get_i64,
    get_u8,
    load_f16,
    load_f32,
    load_i8,
    load_u8,
    max_lanes,
    maximum,
    minimum,
    prefetch,
    put_f16,
    put_f32,
    put_u8,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_f32,
    store_i8,
    to_f32,
    truncate_to_i32,
)

AHEAD = 2  # tiles between what is decoded and what is fetched: mostly those of the next positions

# --- encoding a block of 32 float32 as gguf.quants does: 32 bytes of codes; its scale is the result


@inline
def _encode_q8(source, codes):
    low, high = load_f32(source), load_f32(source + 64)
    scale = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
    inverse = splat_f32(np.float32(1) / scale if scale > np.float32(0) else np.float32(0))
    for half in range(2):
        x = load_f32(source + 64 * half) * inverse
        whole = to_f32(truncate_to_i32(x))
        rest = x - whole
        store_i8(codes + 16 * half, truncate_to_i32(whole + to_f32(truncate_to_i32(rest + rest))))
    return scale


@inline
def _encode_q4(source, codes):
    low, high = load_f32(source), load_f32(source + 64)
    largest = max_lanes(maximum(absolute(low), absolute(high)))
    extreme, column = get_f32(source), 0
    while extreme != largest and -extreme != largest and column < BLOCK - 1:  # the first of the largest
        column += 1
        extreme = get_f32(source + 4 * column)
    scale = extreme / np.float32(-8)
    inverse = splat_f32(np.float32(1) / scale if scale != np.float32(0) else np.float32(0))
    half, fifteen = splat_f32(np.float32(8.5)), splat_f32(np.float32(15))
    for part in range(2):
        x = load_f32(source + 64 * part) * inverse + half
        store_i8(codes + 16 * part, truncate_to_i32(minimum(x, fifteen)))
    return scale


# --- storing tokens


@inline
def cell_of(table, position, block_size):
    """The cell of a position, by the block table of its sequence."""
    block = position // block_size
    return np.int64(get_i32(table + 4 * block)) * block_size + (position - block * block_size)


def _store_values(size: int, put: Any) -> Any:
    def kernel(
        thread, n_threads, n_seqs, seq_starts, positions, table, x, cache, head_bytes, tile_bytes, n_columns, dim, unit,
        block_size,
    ):  # fmt: skip
        starts, table_start, table_width = get_i64(seq_starts), get_i64(table), get_i64(table + 8)
        n_parts = n_columns // unit
        for part in range(part_start(n_parts, thread, n_threads), part_start(n_parts, thread + 1, n_threads)):
            head, column = unit * part // dim, unit * part % dim
            for seq in range(get_i64(n_seqs)):
                for token in range(get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)):
                    position = np.int64(get_i32(get_i64(positions) + 4 * token))
                    cell = cell_of(table_start + 4 * seq * table_width, position, block_size)
                    tile = cache + head * head_bytes + (cell >> 4) * tile_bytes
                    source = x + 4 * (token * n_columns + unit * part)
                    for i in range(unit):
                        put(tile + size * (16 * (column + i) + (cell & 15)), get_f32(source + 4 * i))

    return kernel


def _store_codes(encode: Any, put_code: Any, code_bytes: int) -> Any:
    """``code_bytes`` are those of 32 columns of a tile; ``put_code`` writes the columns ``2 * pair`` and the next."""

    def kernel(
        thread, n_threads, n_seqs, seq_starts, positions, table, x, cache, head_bytes, tile_bytes, n_columns, dim, unit,
        block_size, scratch,
    ):  # fmt: skip
        starts, table_start, table_width = get_i64(seq_starts), get_i64(table), get_i64(table + 8)
        codes = scratch + 64 * thread
        n_parts = n_columns // BLOCK
        for part in range(part_start(n_parts, thread, n_threads), part_start(n_parts, thread + 1, n_threads)):
            for seq in range(get_i64(n_seqs)):
                for token in range(get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)):
                    position = np.int64(get_i32(get_i64(positions) + 4 * token))
                    cell = cell_of(table_start + 4 * seq * table_width, position, block_size)
                    lane = cell & 15
                    scale = encode(x + 4 * (token * n_columns + BLOCK * part), codes)
                    for first in range(0, BLOCK, unit):
                        head, column = (BLOCK * part + first) // dim, (BLOCK * part + first) % dim
                        tile = cache + head * head_bytes + (cell >> 4) * tile_bytes
                        for i in range(0, unit, 2):
                            put_code(tile, (column + i) >> 1, lane, codes + first + i)
                        scales = tile + dim * code_bytes // BLOCK
                        put_f16(scales + 32 * (column // unit) + 2 * lane, scale)

    return kernel


@inline
def _put_bytes(tile, pair, lane, codes):
    put_u8(tile + 32 * pair + lane, get_u8(codes))
    put_u8(tile + 32 * pair + 16 + lane, get_u8(codes + 1))


@inline
def _put_nibbles(tile, pair, lane, codes):
    put_u8(tile + 16 * pair + lane, get_u8(codes) | (get_u8(codes + 1) << np.int32(4)))


def store(kv_type: str) -> Any:
    """A kernel that writes rows ``x [t, n_columns]`` into the cells of the batch's tokens.

    Threads share out the columns, so that a quantized block is one thread's. ``table`` is the address of a block
    table's address and width. Quantized types have ``scratch``: 64 bytes for each thread.
    """
    if kv_type == "f32":
        return _store_values(4, put_f32)
    if kv_type == "f16":
        return _store_values(2, put_f16)
    if kv_type == "q8_0":
        return _store_codes(_encode_q8, _put_bytes, 16 * BLOCK)
    return _store_codes(_encode_q4, _put_nibbles, 8 * BLOCK)


# --- reading a tile: float32 [dim, 16]


@inline
def _read_f32(tile, y, dim, unit):
    for i in range(dim):
        store_f32(y + 64 * i, load_f32(tile + 64 * i))


@inline
def _read_f16(tile, y, dim, unit):
    for i in range(dim):
        store_f32(y + 64 * i, load_f16(tile + 32 * i))


@inline
def _read_q8(tile, y, dim, unit):
    for u in range(dim // unit):
        scale = load_f16(tile + 16 * dim + 32 * u)
        for i in range(unit * u, unit * u + unit):
            store_f32(y + 64 * i, to_f32(load_i8(tile + 16 * i)) * scale)


@inline
def _read_q4(tile, y, dim, unit):
    fifteen, eight = splat_i32(np.int32(15)), splat_i32(np.int32(8))
    for u in range(dim // unit):
        scale = load_f16(tile + 8 * dim + 32 * u)
        for i in range(unit * u, unit * u + unit, 2):
            both = load_u8(tile + 8 * i)
            store_f32(y + 64 * i, to_f32((both & fifteen) - eight) * scale)
            store_f32(y + 64 * i + 64, to_f32(shift_right_i32(both, np.int32(4)) - eight) * scale)


@inline
def _get_f32(tile, lane, column, dim, unit):
    return get_f32(tile + 64 * column + 4 * lane)


@inline
def _get_f16(tile, lane, column, dim, unit):
    return get_f16(tile + 32 * column + 2 * lane)


@inline
def _get_q8(tile, lane, column, dim, unit):
    scale = get_f16(tile + 16 * dim + 32 * (column // unit) + 2 * lane)
    return np.float32(get_i8(tile + 16 * column + lane)) * scale


@inline
def _get_q4(tile, lane, column, dim, unit):
    scale = get_f16(tile + 8 * dim + 32 * (column // unit) + 2 * lane)
    both = get_u8(tile + 16 * (column >> 1) + lane)
    code = both >> np.int32(4) if column & 1 else both & np.int32(15)
    return np.float32(code - np.int32(8)) * scale


_READ = {"f32": _read_f32, "f16": _read_f16, "q8_0": _read_q8, "q4_0": _read_q4}
_GET = {"f32": _get_f32, "f16": _get_f16, "q8_0": _get_q8, "q4_0": _get_q4}


def tile_reader(kv_type: str, cells: str) -> Any:
    """A function that decodes one head at 16 positions, of which the first is a multiple of 16, to ``y [dim, 16]``.

    Where ``cells`` is ``tiles``, blocks are whole tiles, and what is in the tile of the positions is decoded. Else the
    cells of positions from ``first`` up to ``end`` are decoded one by one, and the others are zero.
    """
    read, get = _READ[kv_type], _GET[kv_type]

    @inline
    def read_tile(head, table, position, first, end, block_size, tile_bytes, dim, unit, y):
        place = head + (cell_of(table, position, block_size) >> 4) * tile_bytes
        for line in range(0, tile_bytes, 64):
            prefetch(place + AHEAD * tile_bytes + line)
        read(place, y, dim, unit)

    @inline
    def read_cells(head, table, position, first, end, block_size, tile_bytes, dim, unit, y):
        for i in range(16):
            inside = first <= position + i and position + i < end
            cell = cell_of(table, position + i, block_size) if inside else np.int64(0)
            for column in range(dim):
                value = get(head + (cell >> 4) * tile_bytes, cell & 15, column, dim, unit)
                put_f32(y + 64 * column + 4 * i, value if inside else np.float32(0))

    return read_tile if cells == "tiles" else read_cells
