"""Quantized matrices times int8 activations: one row of activations, or several at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.formats import BY_NAME
from pumice_cpu.kernels.codes import codes_reader
from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kernels.scales import minimum_reader, scale_reader
from pumice_cpu.simd import (
    SIGNED_OFFSET,
    dot,
    dot_signed,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lane,
    load_f32,
    put_f32,
    registers_f32,
    registers_u8,
    splat_f32,
    splat_i32,
    store_f32,
    to_f32,
)


def matmul(format_name: str, n_tokens: str) -> Any:
    """A kernel that multiplies tiles of a matrix by ``n_tokens`` rows of activations at a time.

    The rows of activations are padded to a multiple of ``n_tokens``; what is computed from the padding is
    not stored.
    """
    format, width = BY_NAME[format_name], int(n_tokens)
    read_codes, read_scale, read_minimum = codes_reader(format), scale_reader(format), minimum_reader(format)
    offset = np.int32(SIGNED_OFFSET if format.signed else format.offset)
    signed, halves, has_minimum = format.signed, format.halves, read_minimum is not None
    code_bytes, groups = format.code_bytes, 8 // format.halves
    add_products = dot_signed if signed else dot

    @inline
    def multiply_tile(total, codes, scales, table, x, x_scales, x_sums, n_blocks, registers):
        """Add up one tile times ``width`` rows of activations."""
        for t in range(width):
            total[t] = splat_f32(np.float32(0))
        for block in range(n_blocks):
            read_codes(registers, codes + code_bytes * block, table)
            for half in range(halves):
                scale = read_scale(scales, block, half)
                for t in range(width):
                    at = t * n_blocks + block
                    half_sum = get_i32(x_sums + 8 * at + 4 * half)
                    x_sum = half_sum if halves == 2 else half_sum + get_i32(x_sums + 8 * at + 4)
                    x_scale = splat_f32(get_f32(x_scales + 4 * at))
                    products = splat_i32(-offset * x_sum)
                    for group in range(groups):
                        four = get_i32(x + 32 * at + 4 * (group + groups * half))
                        products = add_products(products, registers[group + groups * half], four)
                    total[t] = fma(to_f32(products), scale * x_scale, total[t])
                    if has_minimum:
                        added = splat_f32(np.float32(x_sum)) * x_scale
                        total[t] = fma(read_minimum(scales, block, half), added, total[t])

    def kernel(
        thread, n_threads, ticket, count, codes, scales, table, bias, x, x_scales, x_sums, y, n_rows, n_blocks,
        scale_stride,
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tokens = get_i64(count)
        n_tiles = (n_rows + 15) // 16
        tile = next_part(ticket)
        while tile < n_tiles:
            for first in range(0, n_tokens, width):
                multiply_tile(
                    total,
                    codes + tile * n_blocks * code_bytes,
                    scales + tile * scale_stride,
                    table,
                    x + first * n_blocks * 32,
                    x_scales + first * n_blocks * 4,
                    x_sums + first * n_blocks * 8,
                    n_blocks,
                    registers,
                )
                for t in range(width):
                    if first + t < n_tokens:
                        result = total[t]
                        if bias != 0:
                            result = result + load_f32(bias + 64 * tile)
                        place = y + 4 * ((first + t) * n_rows + 16 * tile)
                        if 16 * tile + 16 <= n_rows:
                            store_f32(place, result)
                        else:
                            for row in range(n_rows - 16 * tile):
                                put_f32(place + 4 * row, lane(result, row))
            tile = next_part(ticket)

    return kernel
