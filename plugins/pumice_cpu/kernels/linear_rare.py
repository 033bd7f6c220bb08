"""Products with matrices of rarer types: each tile is unpacked to int8 when needed, then multiplied like the others."""

from __future__ import annotations

from typing import Any

from pumice_cpu.formats import UNPACKED
from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kernels.experts import pairs_multiplier
from pumice_cpu.kernels.linear import store_tile, tile_multiplier
from pumice_cpu.kernels.unpack_rare import UNPACK
from pumice_cpu.simd import get_i32, get_i64, registers_f32, registers_u8

CODE_BYTES, SCALE_BYTES = UNPACKED.code_bytes, UNPACKED.scale_bytes


def tile_unpacker(type: str) -> Any:
    """Return a function that unpacks the first 16 of ``n_rows`` rows, or all if there are fewer."""
    unpack = UNPACK[type]

    @inline
    def unpack_tile(rows, table, codes, scales, n_rows, n_blocks, row_bytes, unit_blocks, unit_bytes):
        for unit in range(n_blocks // unit_blocks):
            for row in range(n_rows if n_rows < 16 else 16):
                unpack(
                    rows + row * row_bytes + unit * unit_bytes,
                    table,
                    codes + unit * unit_blocks * CODE_BYTES,
                    scales + unit * unit_blocks * SCALE_BYTES,
                    row,
                )

    return unpack_tile


def matmul(type: str, n_tokens: str) -> Any:
    """Return a kernel for ``n_tokens`` rows of activations at a time. ``scratch`` has room for one tile per thread."""
    width = int(n_tokens)
    multiply, unpack_tile = tile_multiplier(UNPACKED, width), tile_unpacker(type)

    def kernel(
        thread, n_threads, ticket, count, weights, table, bias, x, x_scales, scratch, y, n_rows, n_blocks, row_bytes,
        unit_blocks, unit_bytes,
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tokens = get_i64(count)
        codes = scratch + thread * n_blocks * (CODE_BYTES + SCALE_BYTES)
        scales = codes + n_blocks * CODE_BYTES
        tile = next_part(ticket)
        while 16 * tile < n_rows:
            rows = weights + 16 * tile * row_bytes
            left = n_rows - 16 * tile
            unpack_tile(rows, table, codes, scales, left, n_blocks, row_bytes, unit_blocks, unit_bytes)
            for first in range(0, n_tokens, width):
                start = first * n_blocks
                multiply(total, registers, codes, scales, 0, 0, table, x + 32 * start, x_scales + 16 * start, n_blocks)
                for t in range(width):
                    if first + t < n_tokens:
                        store_tile(total[t], bias, y + 4 * (first + t) * n_rows, tile, n_rows)
            tile = next_part(ticket)

    return kernel


def matmul_experts(type: str, n_tokens: str) -> Any:
    """Like ``matmul``, for pairs in the order of ``experts.group``."""
    width = int(n_tokens)
    multiply_pairs, unpack_tile = pairs_multiplier(UNPACKED, width), tile_unpacker(type)

    def kernel(
        thread, n_threads, ticket, order, matrices, starts, totals, weights, table, x, x_scales, scratch, y, n_rows,
        n_blocks, row_bytes, unit_blocks, unit_bytes,
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tiles = (n_rows + 15) // 16
        codes = scratch + thread * n_blocks * (CODE_BYTES + SCALE_BYTES)
        scales = codes + n_blocks * CODE_BYTES
        part = next_part(ticket)
        while part < get_i64(totals) * n_tiles:
            which, tile = part // n_tiles, part % n_tiles
            rows = weights + (n_rows * get_i32(matrices + 4 * which) + 16 * tile) * row_bytes
            left = n_rows - 16 * tile
            unpack_tile(rows, table, codes, scales, left, n_blocks, row_bytes, unit_blocks, unit_bytes)
            first, end = get_i32(starts + 4 * which), get_i32(starts + 4 * which + 4)
            multiply_pairs(
                total, registers, codes, scales, table, x, x_scales, y, order, first, end, tile, n_rows, n_blocks
            )  # fmt: skip
            part = next_part(ticket)

    return kernel
