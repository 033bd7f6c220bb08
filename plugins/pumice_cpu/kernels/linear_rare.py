"""Matrices of the rarer types: each tile is unpacked to int8 as it is needed, then multiplied like any other."""

from __future__ import annotations

from typing import Any

from pumice_cpu.formats import UNPACKED
from pumice_cpu.kernels.common import next_part
from pumice_cpu.kernels.linear import store_tile, tile_multiplier
from pumice_cpu.kernels.unpack_rare import UNPACK
from pumice_cpu.simd import get_i64, registers_f32, registers_u8


def matmul(type: str, n_tokens: str) -> Any:
    """A kernel for ``n_tokens`` rows of activations at a time. ``scratch`` has room for a tile of each thread."""
    width = int(n_tokens)
    multiply, unpack = tile_multiplier(UNPACKED, width), UNPACK[type]
    code_bytes, scale_bytes = UNPACKED.code_bytes, UNPACKED.scale_bytes

    def kernel(
        thread, n_threads, ticket, count, weights, table, bias, x, x_scales, scratch, y, n_rows, n_blocks, row_bytes,
        unit_blocks, unit_bytes,
    ):  # fmt: skip
        total, registers = registers_f32(width), registers_u8(8)
        n_tokens = get_i64(count)
        codes = scratch + thread * n_blocks * (code_bytes + scale_bytes)
        scales = codes + n_blocks * code_bytes
        tile = next_part(ticket)
        while 16 * tile < n_rows:
            left = n_rows - 16 * tile
            for unit in range(n_blocks // unit_blocks):
                for row in range(left if left < 16 else 16):
                    unpack(
                        weights + (16 * tile + row) * row_bytes + unit * unit_bytes,
                        table,
                        codes + unit * unit_blocks * code_bytes,
                        scales + unit * unit_blocks * scale_bytes,
                        row,
                    )
            for first in range(0, n_tokens, width):
                start = first * n_blocks
                multiply(total, registers, codes, scales, table, x + 32 * start, x_scales + 16 * start, n_blocks)
                for t in range(width):
                    if first + t < n_tokens:
                        store_tile(total[t], bias, y + 4 * (first + t) * n_rows, tile, n_rows)
            tile = next_part(ticket)

    return kernel
