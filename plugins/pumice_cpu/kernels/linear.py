"""Products of quantized matrices with int8 activations: one row of activations, or several at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import BY_NAME
from pumice_cpu.kernels.codes import codes_reader
from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kernels.scales import minimum_reader, scale_reader
from pumice_cpu.simd import (
    dot,
    dot_signed,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lane,
    load_f32,
    prefetch,
    put_f32,
    registers_f32,
    registers_i32,
    registers_u8,
    signed_offset,
    splat_f32,
    splat_i32,
    store_f32,
    to_f32,
)

RUN = 1 << 22  # bytes of weights per item of work, for one row of activations
STREAMS = 4  # addresses in them that a thread reads side by side, each with its own hardware prefetch
AHEAD = 1 << 12  # prefetch distance in bytes of weights for several rows: a fetch then takes as long as the products
CACHED = 1 << 18  # bytes of weights and activations together that stay in the second-level cache


@inline
def tiles_at_once(n_tiles, n_threads, tile_bytes, run):
    """Return the number of consecutive tiles per item: long reads are faster, but threads need several items."""
    few, many = run // tile_bytes, n_tiles // (4 * n_threads)
    count = few if few < many else many
    return count if count > 1 else 1


@inline
def store_tile(result, bias, y, tile, n_rows):
    """Store the 16 rows of a tile (fewer in the last) for one token at ``y``. ``bias`` is 0 without one."""
    if bias != 0:
        result = result + load_f32(bias + 64 * tile)
    if 16 * tile + 16 <= n_rows:
        store_f32(y + 64 * tile, result)
    else:
        for row in range(n_rows - 16 * tile):
            put_f32(y + 64 * tile + 4 * row, lane(result, row))


@functools.cache
def sum_reader(format: Any) -> Any:
    """Return a function that loads the initial value of products: the sum of activations times the code offset."""
    has_offset = format.offset != 0

    @inline
    def read(place):
        return get_i32(place) if has_offset else np.int32(0)

    @inline
    def read_signed(place):
        return get_i32(place) if signed_offset() != 0 else np.int32(0)

    return read_signed if format.signed else read


@functools.cache
def tile_multiplier(format: Any, width: int, streams: int = 1) -> Any:
    """Return a function that accumulates ``streams`` tiles times ``width`` rows of activations in ``total``.

    The tiles are ``code_stride`` bytes of codes and ``scale_stride`` bytes of scales apart.
    """
    read_codes, read_scale, read_minimum = codes_reader(format), scale_reader(format), minimum_reader(format)
    read_sum, halves, has_minimum = sum_reader(format), format.halves, read_minimum is not None
    code_bytes, groups = format.code_bytes, 8 // format.halves
    add_products = dot_signed if format.signed else dot
    first_sum = 1 if halves == 1 else 2

    @inline
    def multiply(total, registers, codes, scales, code_stride, scale_stride, table, x, x_scales, n_blocks):
        products = registers_i32(width)
        for i in range(streams * width):
            total[i] = splat_f32(np.float32(0))
        for block in range(n_blocks):
            four, factors = x + 32 * width * block, x_scales + 16 * width * block
            for stream in range(streams):
                if width > 1:
                    for line in range(0, code_bytes, 64):
                        prefetch(codes + code_stride * stream + code_bytes * block + AHEAD + line)
                read_codes(registers, codes + code_stride * stream + code_bytes * block, table)
                for half in range(halves):
                    scale = read_scale(scales + scale_stride * stream, block, half)
                    if has_minimum:
                        minimum = read_minimum(scales + scale_stride * stream, block, half)
                    for t in range(width):
                        products[t] = splat_i32(read_sum(factors + 4 * width * (first_sum + half) + 4 * t))
                    for group in range(groups):
                        column = groups * half + group
                        for t in range(width):
                            x_codes = get_i32(four + 32 * t + 4 * column)
                            products[t] = add_products(products[t], registers[column], x_codes)
                    for t in range(width):
                        sum = width * stream + t
                        factor = scale * splat_f32(get_f32(factors + 4 * t))
                        total[sum] = fma(to_f32(products[t]), factor, total[sum])
                        if has_minimum:
                            x_sum = factors + 4 * width * (first_sum + half) + 4 * t
                            total[sum] = fma(minimum, splat_f32(get_f32(x_sum)), total[sum])

    return multiply


@functools.cache
def run_multiplier(format: Any) -> Any:
    """Return a function that multiplies the tiles ``tile`` to ``end`` of a matrix by one row of activations.

    STREAMS tiles at equal distances are multiplied at once, and the last few one by one.
    """
    multiply_several, multiply_one = tile_multiplier(format, 1, STREAMS), tile_multiplier(format, 1)
    code_bytes = format.code_bytes

    @inline
    def multiply_run(
        total, registers, codes, scales, table, bias, x, x_scales, y, tile, end, n_rows, n_blocks, scale_stride
    ):  # fmt: skip
        tile_bytes = n_blocks * code_bytes
        apart = (end - tile) // STREAMS
        for row_tile in range(tile, tile + apart):
            multiply_several(
                total, registers, codes + row_tile * tile_bytes, scales + row_tile * scale_stride, apart * tile_bytes,
                apart * scale_stride, table, x, x_scales, n_blocks,
            )  # fmt: skip
            for stream in range(STREAMS):
                store_tile(total[stream], bias, y, row_tile + stream * apart, n_rows)
        for row_tile in range(tile + STREAMS * apart, end):
            multiply_one(
                total, registers, codes + row_tile * tile_bytes, scales + row_tile * scale_stride, 0, 0, table, x,
                x_scales, n_blocks,
            )  # fmt: skip
            store_tile(total[0], bias, y, row_tile, n_rows)

    return multiply_run


def matvec(format_name: str) -> Any:
    """Return a kernel that multiplies tiles of a matrix by one row of activations."""
    format = BY_NAME[format_name]
    multiply_run, code_bytes = run_multiplier(format), format.code_bytes

    def kernel(thread, n_threads, ticket, codes, scales, table, bias, x, x_scales, y, n_rows, n_blocks, scale_stride):
        total, registers = registers_f32(STREAMS), registers_u8(8)
        n_tiles = (n_rows + 15) // 16
        step = tiles_at_once(n_tiles, n_threads, n_blocks * code_bytes, RUN)
        tile = next_part(ticket) * step
        while tile < n_tiles:
            end = tile + step if tile + step < n_tiles else n_tiles
            multiply_run(
                total, registers, codes, scales, table, bias, x, x_scales, y, tile, end, n_rows, n_blocks, scale_stride
            )  # fmt: skip
            tile = next_part(ticket) * step

    return kernel


def matmul(format_name: str, n_tokens: str) -> Any:
    """Return a kernel that multiplies tiles of a matrix by ``n_tokens`` rows of activations at a time.

    The rows of activations are in groups of ``n_tokens`` (kernels/quantize.py). The last group is padded; results of
    the padding are not stored.
    """
    format, width = BY_NAME[format_name], int(n_tokens)
    multiply, code_bytes = tile_multiplier(format, width), format.code_bytes

    def kernel(
        thread, n_threads, ticket, count, codes, scales, table, bias, x, x_scales, y, n_rows, n_blocks, scale_stride
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tokens = get_i64(count)
        n_tiles = (n_rows + 15) // 16
        step = tiles_at_once(n_tiles, n_threads, n_blocks * code_bytes, CACHED)
        token_step = CACHED // (32 * width * n_blocks) * width
        token_step = token_step if token_step > width else width
        tile = next_part(ticket) * step
        while tile < n_tiles:
            end = tile + step if tile + step < n_tiles else n_tiles
            for first_token in range(0, n_tokens, token_step):
                end_token = first_token + token_step if first_token + token_step < n_tokens else n_tokens
                for row_tile in range(tile, end):
                    tile_codes, tile_scales = codes + row_tile * n_blocks * code_bytes, scales + row_tile * scale_stride
                    for first in range(first_token, end_token, width):
                        place = first * n_blocks
                        multiply(
                            total, registers, tile_codes, tile_scales, 0, 0, table, x + 32 * place,
                            x_scales + 16 * place, n_blocks,
                        )  # fmt: skip
                        for t in range(width):
                            if first + t < n_tokens:
                                store_tile(total[t], bias, y + 4 * (first + t) * n_rows, row_tile, n_rows)
            tile = next_part(ticket) * step

    return kernel
