"""Products of many rows with matrices, in tiles of bfloat16: weights are decoded once for all rows.

A tile of weights holds 16 rows of the matrix and 32 columns, as pairs of columns: row ``i`` of the tile has the
columns ``2 i`` and ``2 i + 1`` of the 16 rows. A tile of activations holds 16 rows of 32 columns. ``amx`` computes with
the tile registers of a processor; ``emulated`` does the same in memory, on any processor, for tests.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from pumice_cpu.formats import BY_NAME, COLUMNS
from pumice_cpu.formats import TILE_BLOCKS as BLOCKS
from pumice_cpu.formats import TILE_BYTES as TILE
from pumice_cpu.formats import TILE_PANELS as PANELS
from pumice_cpu.formats import TILE_ROWS as ROWS
from pumice_cpu.formats import TILE_SCRATCH as SCRATCH
from pumice_cpu.formats import TILE_TOKENS as TOKENS
from pumice_cpu.kernels.codes import codes_reader
from pumice_cpu.kernels.common import inline, next_part, part_start, transpose
from pumice_cpu.kernels.linear import store_tile
from pumice_cpu.kernels.scales import minimum_reader, scale_reader
from pumice_cpu.simd import (
    as_f32,
    as_i32,
    byte_of_lanes,
    fma,
    get_bf16,
    get_f32,
    get_i64,
    load_f32,
    load_i32,
    pairs_of_halves,
    prefetch,
    put_bf16,
    registers_f32,
    registers_u8,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_f32,
    store_i32,
    tiles,
    to_bf16,
    to_f32,
    where_bits,
)

STATE = 4 * ROWS * ROWS  # bytes of the sums of ROWS rows times ROWS rows
PANEL = 2 * TILE * BLOCKS  # bytes of the decoded weights of a panel
SUMS = 4 * ROWS * TOKENS  # bytes of the sums of a panel
AHEAD = 3  # panels between the one that is multiplied and the one whose weights are prefetched


@inline
def _pass(state):
    pass


@inline
def _clear_emulated(state):
    for i in range(64):
        store_f32(state + 64 * i, splat_f32(np.float32(0)))


@inline
def _load_emulated(state, place):
    for i in range(64):
        store_f32(state + 64 * i, load_f32(place + 64 * i))


@inline
def _store_emulated(state, place):
    for i in range(64):
        store_f32(place + 64 * i, load_f32(state + 64 * i))


@inline
def _multiply_emulated(state, low, high, weights):
    for row in range(ROWS):
        x = low + 64 * row if row < 16 else high + 64 * (row - 16)
        for half in range(2):
            place = state + 128 * row + 64 * half
            total = load_f32(place)
            for pair in range(16):
                both = load_i32(weights + TILE * half + 64 * pair)
                even = as_f32(shift_left_i32(both, np.int32(16)))
                odd = as_f32(both & splat_i32(np.int32(-65536)))
                total = fma(even, splat_f32(get_bf16(x + 4 * pair)), total)
                total = fma(odd, splat_f32(get_bf16(x + 4 * pair + 2)), total)
            store_f32(place, total)


@inline
def _store_row(x, y):
    store_f32(y, to_bf16(load_f32(x), load_f32(x + 64)))


@inline
def _store_row_emulated(x, y):
    for column in range(32):
        put_bf16(y + 2 * column, get_f32(x + 4 * column))


@inline
def _store_pairs(place, even, odd):
    store_f32(place, pairs_of_halves(to_bf16(even, odd)))


@inline
def _rounded(value):
    """Return the bits of finite float32 values, rounded to bfloat16 in their upper halves."""
    bits = as_i32(value)
    is_odd = shift_right_i32(bits, np.int32(16)) & splat_i32(np.int32(1))
    return bits + splat_i32(np.int32(0x7FFF)) + is_odd


@inline
def _store_pairs_emulated(place, even, odd):
    high = _rounded(odd) & splat_i32(np.int32(-65536))
    store_i32(place, shift_right_i32(_rounded(even), np.int32(16)) | high)


@inline
def activation_tiles(x, n_tokens, n_blocks, token, block):
    """Return the address of the tile of 16 rows from ``token`` on and of ``block``; the next rows' is BLOCKS further.

    The tiles that a panel is multiplied with, those of BLOCKS blocks of TOKENS rows, are together: with the rows of a
    large matrix apart by powers of two, they would compete for the same lines of the second-level cache.
    """
    padded = (n_tokens + ROWS - 1) // ROWS * ROWS
    first = token // TOKENS * TOKENS
    n_groups = (padded - first if padded - first < TOKENS else TOKENS) // 16
    n_chunks = (n_blocks + BLOCKS - 1) // BLOCKS
    number = (first // 16 * n_chunks + block // BLOCKS * n_groups + (token - first) // 16) * BLOCKS + block % BLOCKS
    return x + number * TILE


class Kind(NamedTuple):
    """The functions of a kind of tiles.

    Attributes:
        begin, clear, load, multiply, store, end: as in ``pumice_cpu.simd.tiles``.
        store_row: rounds 32 columns of a row.
        store_pairs: rounds two columns of 16 rows to pairs.
    """

    begin: Any
    clear: Any
    load: Any
    multiply: Any
    store: Any
    end: Any
    store_row: Any
    store_pairs: Any


KINDS = {
    "amx": Kind(tiles.begin, tiles.clear, tiles.load, tiles.multiply, tiles.store, tiles.end, _store_row, _store_pairs),
    "emulated": Kind(
        _pass,
        _clear_emulated,
        _load_emulated,
        _multiply_emulated,
        _store_emulated,
        _pass,
        _store_row_emulated,
        _store_pairs_emulated,
    ),
}


def group(kind: str) -> Any:
    """Return a kernel that rounds rows of ``n_blocks`` blocks to tiles: 16 rows at a time, block by block.

    Rows are padded with zeros to a multiple of ROWS.
    """
    store_row = KINDS[kind].store_row

    def kernel(thread, n_threads, count, x, y, n_blocks):
        n_rows = get_i64(count)
        padded = (n_rows + ROWS - 1) // ROWS * ROWS
        for row in range(part_start(padded, thread, n_threads), part_start(padded, thread + 1, n_threads)):
            for block in range(n_blocks):
                to = activation_tiles(y, n_rows, n_blocks, row, block) + row % 16 * 64
                if row < n_rows:
                    store_row(x + 128 * (row * n_blocks + block), to)
                else:
                    store_f32(to, splat_f32(np.float32(0)))

    return kernel


@functools.cache
def tile_decoder(format_name: str, store_pairs: Any) -> Any:
    """Return a function that decodes blocks of 16 rows of a matrix to tiles, ``2 * TILE`` bytes apart.

    ``registers``, ``rows`` and ``spare`` are arrays of 8, 16 and 16 registers; ``scales`` and ``table`` are those of
    packed matrices.
    """
    if format_name == "bf16":
        return _transpose_pairs
    format = BY_NAME[format_name]
    read_codes, read_scale, read_minimum = codes_reader(format), scale_reader(format), minimum_reader(format)
    halves, has_minimum, is_signed = format.halves, read_minimum is not None, format.signed
    groups, code_bytes = 8 // format.halves, format.code_bytes
    offset = -128 if format.signed else -format.offset

    @inline
    def decode(
        registers, rows, spare, to, weights, scales, table, tile, first, width, n_rows, n_blocks, scale_stride
    ):  # fmt: skip
        tile_codes, tile_scales = weights + tile * n_blocks * code_bytes, scales + tile * scale_stride
        for block in range(first, first + width):
            read_codes(registers, tile_codes + code_bytes * block, table)
            for half in range(halves):
                scale = read_scale(tile_scales, block, half)
                base = scale * splat_f32(np.float32(offset))
                if has_minimum:
                    base = base + read_minimum(tile_scales, block, half)
                for group in range(groups):
                    column = groups * half + group
                    four = registers[column]
                    if is_signed:  # to unsigned numbers, larger by 128
                        four = four ^ where_bits(np.int64(-1), np.int32(128))
                    place = to + 2 * TILE * (block - first) + 128 * column
                    for pair in range(2):
                        even = fma(to_f32(byte_of_lanes(four, 2 * pair)), scale, base)
                        odd = fma(to_f32(byte_of_lanes(four, 2 * pair + 1)), scale, base)
                        store_pairs(place + 64 * pair, even, odd)

    return decode


@inline
def _transpose_pairs(
    registers, rows, spare, to, weights, scales, table, tile, first, width, n_rows, n_blocks, scale_stride
):  # fmt: skip
    """Arrange 16 rows of bfloat16, as they are in the file, as tiles; rows that are missing are zeros."""
    for block in range(first, first + width):
        for row in range(16):
            rows[row] = splat_f32(np.float32(0))
            if 16 * tile + row < n_rows:
                rows[row] = load_f32(weights + 64 * ((16 * tile + row) * n_blocks + block))  # moved as bits
        transpose(rows, spare)
        for pair in range(16):
            store_f32(to + 2 * TILE * (block - first) + 64 * pair, rows[pair])


@functools.cache
def tile_prefetcher(format_name: str) -> Any:
    """Return a function that prefetches the codes or rows, and a line of the scales, of a block of 16 rows.

    A block of 256 columns with common scales, whose lines are at most as many as its blocks of 32, has all of them
    prefetched with its blocks.
    """
    if format_name == "bf16":
        return _prefetch_rows
    format = BY_NAME[format_name]
    code_bytes, scale_bytes, n_common = format.code_bytes, format.scale_bytes, format.block_columns // COLUMNS

    @inline
    def prefetch_block(weights, scales, tile, block, n_blocks, scale_stride):
        codes = weights + (tile * n_blocks + block) * code_bytes
        for line in range(0, code_bytes, 64):
            prefetch(codes + line)
        prefetch(scales + tile * scale_stride + block // n_common * scale_bytes + block % n_common * 64)

    return prefetch_block


@inline
def _prefetch_rows(weights, scales, tile, block, n_blocks, scale_stride):
    for row in range(16):
        prefetch(weights + 64 * ((16 * tile + row) * n_blocks + block))


@inline
def _panels_at_once(n_panels, n_threads):
    count = n_panels // n_threads
    count = count if count < PANELS else PANELS
    return count if count > 1 else 1


@functools.cache
def group_multiplier(kind: str) -> Any:
    """Return a function that adds the products of decoded columns of a panel and ROWS rows of activations to sums."""
    _, clear, load, multiply, store, *_ = KINDS[kind]

    @inline
    def multiply_group(state, panel, place, x, n_tokens, token, block, width, n_blocks):
        low = activation_tiles(x, n_tokens, n_blocks, token, block)
        if block == 0:
            clear(state)
        else:
            load(state, place)
        for i in range(width):
            multiply(state, low + TILE * i, low + TILE * (BLOCKS + i), panel + 2 * TILE * i)
        store(state, place)

    return multiply_group


@functools.cache
def part_multiplier(format_name: str, kind: str) -> Any:
    """Return a function that multiplies panels of a matrix with a chunk of rows of activations.

    Panels are decoded BLOCKS blocks at a time. While one of two is multiplied, the next is decoded, a few blocks after
    each group of rows: the processor overlaps them, since the tile unit works beside the vector units. Meanwhile the
    weights of the panel after AHEAD are prefetched: between few of a panel's weights and the next few lie the
    activations and sums of a group, and the processor, which follows a limited number of pages, prefetches them late.
    """
    decode, multiply_group = tile_decoder(format_name, KINDS[kind].store_pairs), group_multiplier(kind)
    prefetch_block = tile_prefetcher(format_name)

    @inline
    def multiply_part(
        registers, rows, spare, state, sums, weights, scales, table, x, n_tokens, first, end_token, tile, end_tile,
        n_rows, n_blocks, scale_stride,
    ):  # fmt: skip
        n_panels = (end_tile - tile + 1) // 2
        n_steps = (n_blocks + BLOCKS - 1) // BLOCKS * n_panels
        for step in range(-1, n_steps):  # the first one only decodes
            block, panel = step // n_panels * BLOCKS, step % n_panels
            width = BLOCKS if block + BLOCKS < n_blocks else n_blocks - block
            next_block, next_tile = (step + 1) // n_panels * BLOCKS, tile + 2 * ((step + 1) % n_panels)
            next_width = BLOCKS if next_block + BLOCKS < n_blocks else n_blocks - next_block
            later_block, later_tile = (step + AHEAD) // n_panels * BLOCKS, tile + 2 * ((step + AHEAD) % n_panels)
            n_halves = 2 if next_tile + 1 < end_tile else 1
            n_units = n_halves * next_width if step + 1 < n_steps else 0
            n_groups = (end_token - first + ROWS - 1) // ROWS if step >= 0 else 1
            place, to = state + STATE + PANEL * (step & 1), state + STATE + PANEL * ((step + 1) & 1)
            for group in range(n_groups):
                if step >= 0:
                    multiply_group(
                        state, place, sums + panel * SUMS + 4 * ROWS * ROWS * group, x, n_tokens,
                        first + ROWS * group, block, width, n_blocks,
                    )  # fmt: skip
                for unit in range(n_units * group // n_groups, n_units * (group + 1) // n_groups):
                    half, ahead = unit % n_halves, unit // n_halves
                    decode(
                        registers, rows, spare, to + TILE * (half + 2 * ahead), weights, scales, table,
                        next_tile + half, next_block + ahead, 1, n_rows, n_blocks, scale_stride,
                    )  # fmt: skip
                    if step + AHEAD < n_steps:
                        prefetch_block(weights, scales, later_tile + half, later_block + ahead, n_blocks, scale_stride)

    return multiply_part


@inline
def _store_sums(sums, bias, y, first, end_token, tile, end_tile, n_rows):
    """Store the sums of the panels from ``tile`` on, which is even, for a chunk of rows of activations."""
    for token in range(first, end_token):
        for i in range(end_tile - tile):
            place = sums + i // 2 * SUMS + 4 * ROWS * (token - first) + 64 * (i & 1)
            store_tile(load_f32(place), bias, y + 4 * token * n_rows, tile + i, n_rows)


def matmul(format_name: str, kind: str) -> Any:
    """Return a kernel that multiplies a matrix with rows of activations in tiles (``group``).

    The matrix is packed, or ``bf16`` as in the file. ``scratch`` has SCRATCH bytes per thread. Without rows, the tiles
    are not used.
    """
    begin, end = KINDS[kind].begin, KINDS[kind].end
    multiply_part = part_multiplier(format_name, kind)

    def kernel(
        thread, n_threads, ticket, count, weights, scales, table, bias, x, scratch, y, n_rows, n_blocks, scale_stride
    ):  # fmt: skip
        registers, rows, spare = registers_u8(8), registers_f32(16), registers_f32(16)
        n_tokens = get_i64(count)
        state = scratch + thread * SCRATCH
        sums = state + STATE + 2 * PANEL
        n_tiles, n_panels = (n_rows + 15) // 16, (n_rows + ROWS - 1) // ROWS
        step = _panels_at_once(n_panels, n_threads)
        part = next_part(ticket) * step
        if n_tokens > 0 and part < n_panels:
            begin(state)
            while part < n_panels:
                end_part = part + step if part + step < n_panels else n_panels
                end_tile = 2 * end_part if 2 * end_part < n_tiles else n_tiles
                for first in range(0, n_tokens, TOKENS):
                    end_token = first + TOKENS if first + TOKENS < n_tokens else n_tokens
                    multiply_part(
                        registers, rows, spare, state, sums, weights, scales, table, x, n_tokens, first, end_token,
                        2 * part, end_tile, n_rows, n_blocks, scale_stride,
                    )  # fmt: skip
                    _store_sums(sums, bias, y, first, end_token, 2 * part, end_tile, n_rows)
                part = next_part(ticket) * step
            end(state)

    return kernel
