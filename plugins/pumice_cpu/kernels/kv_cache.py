"""Stores of tokens into the paged cache, and loads of its tiles; pumice_cpu/kv_cache.py describes the layout."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice.plugin.unstable import Coding
from pumice_cpu.kernels.common import inline, part_start, transpose
from pumice_cpu.kernels.kv_encode import encoder
from pumice_cpu.kv_cache import BLOCK, CacheType
from pumice_cpu.simd import (
    fma,
    get_bf16,
    get_f16,
    get_f32,
    get_i8,
    get_i32,
    get_i64,
    get_u8,
    get_u16,
    load_bf16,
    load_f16,
    load_f32,
    load_i8,
    load_u8,
    prefetch,
    put_bf16,
    put_f16,
    put_f32,
    put_u8,
    put_u16,
    registers_f32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_f32,
    to_f32,
    where_bits_i32,
)

AHEAD = 2  # prefetch distance in tiles

# --- storing tokens


@inline
def cell_of(table, position, block_size):
    """Return the cell of a position by its sequence's block table.

    A tile may begin in a block that has slid out of the window (-1): its values are masked, but they are read, and the
    memory in front of the cache may not be there. They are read from block 0.
    """
    place = position // block_size
    block = np.int64(get_i32(table + 4 * place))
    held = block if block > 0 else np.int64(0)
    return held * block_size + (position - place * block_size)


@inline
def begins_tile(table, position, block_size, left):
    """Return True if the cells of this position and the next 15, of which ``left`` are stored, are a tile in order."""
    cell = cell_of(table, position, block_size)
    whole = left >= 16 and cell & 15 == 0
    for i in range(1, 16):
        whole = whole and cell_of(table, position + i, block_size) == cell + i
    return whole


@inline
def begins_stored_tile(table, position, first, end, block_size):
    """Return True if this position and the next 15 are ``first`` to ``end``, and a tile in order, in blocks of one."""
    whole = block_size == 1 and first <= position and position + 16 <= end
    if whole:
        start = get_i32(table + 4 * position)
        whole = start & np.int32(15) == 0
        for i in range(1, 16):
            whole = whole and get_i32(table + 4 * (position + i)) == start + np.int32(i)
    return whole


def _store_values(size: int, put: Any) -> Any:
    def kernel(
        thread, n_threads, n_seqs, seq_starts, positions, table, x, cache, head_bytes, tile_bytes, n_columns, dim, unit,
        block_size,
    ):  # fmt: skip
        registers, spare = registers_f32(16), registers_f32(16)
        starts, table_start, table_width = get_i64(seq_starts), get_i64(table), get_i64(table + 8)
        n_parts = n_columns // unit
        first_part, end_part = part_start(n_parts, thread, n_threads), part_start(n_parts, thread + 1, n_threads)
        for seq in range(get_i64(n_seqs)):
            token, end = np.int64(get_i32(starts + 4 * seq)), np.int64(get_i32(starts + 4 * seq + 4))
            own_table = table_start + 4 * seq * table_width
            while token < end:
                position = np.int64(get_i32(get_i64(positions) + 4 * token))
                cell = cell_of(own_table, position, block_size)
                whole = size == 4 and unit % 16 == 0 and begins_tile(own_table, position, block_size, end - token)
                head, column = unit * first_part // dim, unit * first_part % dim
                for part in range(first_part, end_part):
                    tile = cache + head * head_bytes + (cell >> 4) * tile_bytes + 16 * size * column
                    source = x + 4 * (token * n_columns + unit * part)
                    if whole:
                        for i in range(0, unit, 16):
                            for row in range(16):
                                registers[row] = load_f32(source + 4 * (row * n_columns + i))
                            transpose(registers, spare)
                            for row in range(16):
                                store_f32(tile + 64 * (i + row), registers[row])
                    else:
                        for i in range(unit):
                            put(tile + size * (16 * i + (cell & 15)), get_f32(source + 4 * i))
                    column += unit
                    if column == dim:
                        head, column = head + 1, np.int64(0)
                token += 16 if whole else 1

    return kernel


def _store_codes(type: CacheType, coding: Coding) -> Any:
    encode, put_codes = encoder(coding), _PUT_CODES[coding.bits]
    code_bytes, scale_bytes, has_minimum = type.code_bytes, type.scale_bytes, coding.has_minimum

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
                    encode(x + 4 * (token * n_columns + BLOCK * part), codes)
                    for first in range(0, BLOCK, unit):
                        head, column = (BLOCK * part + first) // dim, (BLOCK * part + first) % dim
                        tile = cache + head * head_bytes + (cell >> 4) * tile_bytes
                        for i in range(0, unit, 2):
                            put_codes(
                                tile, dim, column + i, lane, get_u8(codes + first + i), get_u8(codes + first + i + 1)
                            )
                        place = tile + code_bytes * dim + scale_bytes * (column // unit) + 2 * lane
                        put_f16(place, get_f32(codes + BLOCK))
                        if has_minimum:
                            put_f16(place + 32, get_f32(codes + BLOCK + 4))

    return kernel


@inline
def _put_bytes(tile, dim, column, lane, even, odd):
    """Store a cell's codes of an even column and the next."""
    put_u8(tile + 16 * column + lane, even)
    put_u8(tile + 16 * column + 16 + lane, odd)


@inline
def _put_nibbles(tile, dim, column, lane, even, odd):
    put_u8(tile + 8 * column + lane, (even & np.int32(15)) | ((odd & np.int32(15)) << np.int32(4)))


@inline
def _put_nibbles_and_bits(tile, dim, column, lane, even, odd):
    _put_nibbles(tile, dim, column, lane, even, odd)
    _put_bit(tile + 8 * dim + 2 * column, lane, even >> np.int32(4))
    _put_bit(tile + 8 * dim + 2 * column + 2, lane, odd >> np.int32(4))


@inline
def _put_bit(place, lane, bit):
    shift = np.int32(lane)
    put_u16(place, (get_u16(place) & ~(np.int32(1) << shift)) | (bit << shift))


_PUT_CODES = {4: _put_nibbles, 5: _put_nibbles_and_bits, 8: _put_bytes}


def store(kv_type: str) -> Any:
    """Return a kernel that writes rows ``x [t, n_columns]`` into the cells of a batch's tokens.

    Threads divide the columns, so one thread has a whole quantized block. ``table`` is the address of a block table's
    address and width. Quantized types need ``scratch``: 64 bytes per thread.
    """
    type = CacheType.of(kv_type)
    return _store_codes(type, type.coding) if type.coding else _store_values(type.bits // 8, _PUT[kv_type])


# --- reading a tile: float32 [dim, 16]


def _value_reader(type: CacheType) -> Any:
    load, code_bytes = LOAD[type.name], type.code_bytes

    @inline
    def read(tile, y, dim, unit):
        for i in range(dim):
            store_f32(y + 64 * i, load(tile + code_bytes * i))

    return read


def _code_reader(type: CacheType, coding: Coding) -> Any:
    load_codes, offset = _LOAD_CODES[coding.bits], coding.offset
    code_bytes, scale_bytes, has_minimum = type.code_bytes, type.scale_bytes, coding.has_minimum

    @inline
    def read(tile, y, dim, unit):
        for u in range(dim // unit):
            place = tile + code_bytes * dim + scale_bytes * u
            scale = load_f16(place)
            for i in range(unit * u, unit * u + unit, 2):
                even, odd = load_codes(tile, dim, i)
                if offset != 0:
                    even, odd = even - splat_i32(np.int32(offset)), odd - splat_i32(np.int32(offset))
                if has_minimum:
                    low = load_f16(place + 32)
                    store_f32(y + 64 * i, fma(to_f32(even), scale, low))
                    store_f32(y + 64 * i + 64, fma(to_f32(odd), scale, low))
                else:
                    store_f32(y + 64 * i, to_f32(even) * scale)
                    store_f32(y + 64 * i + 64, to_f32(odd) * scale)

    return read


@inline
def _load_bytes(tile, dim, column):
    """Load the codes of all cells in an even column and the next."""
    return load_i8(tile + 16 * column), load_i8(tile + 16 * column + 16)


@inline
def _load_nibbles(tile, dim, column):
    both = load_u8(tile + 8 * column)
    return both & splat_i32(np.int32(15)), shift_right_i32(both, np.int32(4))


@inline
def _load_nibbles_and_bits(tile, dim, column):
    even, odd = _load_nibbles(tile, dim, column)
    bits = tile + 8 * dim + 2 * column
    sixteen = np.int32(16)
    return even | where_bits_i32(get_u16(bits), sixteen), odd | where_bits_i32(get_u16(bits + 2), sixteen)


def _value_getter(type: CacheType) -> Any:
    get, code_bytes = _GET[type.name], type.code_bytes
    value_bytes = code_bytes // 16

    @inline
    def get_value(tile, lane, column, dim, unit):
        return get(tile + code_bytes * column + value_bytes * lane)

    return get_value


def _code_getter(type: CacheType, coding: Coding) -> Any:
    get_code, offset = _GET_CODE[coding.bits], coding.offset
    code_bytes, scale_bytes, has_minimum = type.code_bytes, type.scale_bytes, coding.has_minimum

    @inline
    def get_value(tile, lane, column, dim, unit):
        place = tile + code_bytes * dim + scale_bytes * (column // unit) + 2 * lane
        value = np.float32(get_code(tile, dim, column, lane) - np.int32(offset)) * get_f16(place)
        return value + get_f16(place + 32) if has_minimum else value

    return get_value


@inline
def _get_byte(tile, dim, column, lane):
    return get_i8(tile + 16 * column + lane)


@inline
def _get_nibble(tile, dim, column, lane):
    both = get_u8(tile + 16 * (column >> 1) + lane)
    return both >> np.int32(4) if column & 1 else both & np.int32(15)


@inline
def _get_nibble_and_bit(tile, dim, column, lane):
    bit = (get_u16(tile + 8 * dim + 2 * column) >> np.int32(lane)) & np.int32(1)
    return _get_nibble(tile, dim, column, lane) | (bit << np.int32(4))


_LOAD_CODES = {4: _load_nibbles, 5: _load_nibbles_and_bits, 8: _load_bytes}
_GET_CODE = {4: _get_nibble, 5: _get_nibble_and_bit, 8: _get_byte}

#: For floats: how to store one value, load one value, and load sixteen.
_PUT = {"f32": put_f32, "f16": put_f16, "bf16": put_bf16}
_GET = {"f32": get_f32, "f16": get_f16, "bf16": get_bf16}
LOAD = {"f32": load_f32, "f16": load_f16, "bf16": load_bf16}


@functools.cache
def tile_reader(kv_type: str, cells: str) -> Any:
    """Return a function that decodes one head at 16 positions, the first a multiple of 16, to ``y [dim, 16]``.

    If ``cells`` is ``tiles``, blocks are whole tiles, and the whole tile is decoded. Otherwise the cells of positions
    from ``first`` up to ``end`` are decoded, and the others are zero: all at once if they make up a tile, as those of a
    step without a cache do, else one by one.
    """
    type = CacheType.of(kv_type)
    if type.coding:
        read, get = _code_reader(type, type.coding), _code_getter(type, type.coding)
    else:
        read, get = _value_reader(type), _value_getter(type)

    @inline
    def read_tile(head, table, position, first, end, block_size, tile_bytes, dim, unit, y):
        place = head + (cell_of(table, position, block_size) >> 4) * tile_bytes
        for line in range(0, tile_bytes, 64):
            prefetch(place + AHEAD * tile_bytes + line)
        read(place, y, dim, unit)

    @inline
    def read_apart(head, table, position, first, end, block_size, tile_bytes, dim, unit, y):
        begin = first if first > position else position
        stop = end if end < position + 16 else position + 16
        if stop - begin < 16:
            for column in range(dim):
                store_f32(y + 64 * column, splat_f32(np.float32(0)))
        for cell_position in range(begin, stop):  # bounds that are no constants, so that LLVM does not unroll it
            cell = cell_of(table, cell_position, block_size)
            for column in range(dim):
                value = get(head + (cell >> 4) * tile_bytes, cell & 15, column, dim, unit)
                put_f32(y + 64 * column + 4 * (cell_position - position), value)

    @inline
    def read_cells(head, table, position, first, end, block_size, tile_bytes, dim, unit, y):
        if begins_stored_tile(table, position, first, end, block_size):
            read_tile(head, table, position, first, end, block_size, tile_bytes, dim, unit, y)
        else:
            read_apart(head, table, position, first, end, block_size, tile_bytes, dim, unit, y)

    return read_tile if cells == "tiles" else read_cells
