"""Packing of the rows of a GGUF tensor into tiles (formats.py) when the model is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.formats import BY_NAME, COLUMNS, ROWS
from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kernels.unpack import UNPACK
from pumice_cpu.simd import get_i32, put_i32, put_i64

UNIT = 256  # maximum columns of a row unpacked at once


@inline
def _plane_8(codes, stride, place):
    """Pack codes into a plane. ``codes``: address of a block's first code; ``stride``: bytes between rows."""
    for group in range(8):
        for row in range(16):
            put_i32(place + 64 * group + 4 * row, get_i32(codes + stride * row + 4 * group))


@inline
def _plane_4(codes, stride, place):
    for vector in range(4):
        for row in range(16):
            source = codes + stride * row + 4 * vector
            low, high = get_i32(source) & 0x0F0F0F0F, get_i32(source + 16) & 0x0F0F0F0F
            put_i32(place + 64 * vector + 4 * row, low | (high << 4))


@inline
def _plane_2(codes, stride, place, shift):
    for vector in range(2):
        for row in range(16):
            source = codes + stride * row + 16 * vector
            packed = (get_i32(source) >> shift) & 0x03030303
            for group in range(1, 4):
                packed |= ((get_i32(source + 4 * group) >> shift) & 0x03030303) << (2 * group)
            put_i32(place + 64 * vector + 4 * row, packed)


@inline
def _plane_1(codes, stride, place, shift):
    for group in range(8):
        word = np.int64(0)
        for row in range(16):
            bits = (np.int64(get_i32(codes + stride * row + 4 * group)) >> shift) & 0x01010101
            word |= (((bits * 0x01020408) >> 24) & 15) << (4 * row)  # the product gathers the four bits
        put_i64(place + 8 * group, word)


@inline
def _planes_3(codes, stride, place):
    _plane_2(codes, stride, place, 0)
    _plane_1(codes, stride, place + 128, 2)


@inline
def _planes_5(codes, stride, place):
    _plane_4(codes, stride, place)
    _plane_1(codes, stride, place + 256, 4)


@inline
def _planes_6(codes, stride, place):
    _plane_4(codes, stride, place)
    _plane_2(codes, stride, place + 256, 4)


@inline
def _planes_2(codes, stride, place):
    _plane_2(codes, stride, place, 0)


_PLANES = {2: _planes_2, 3: _planes_3, 4: _plane_4, 5: _planes_5, 6: _planes_6, 8: _plane_8}


def pack(format_name: str) -> Any:
    """Return a kernel that packs a matrix of this format. ``scratch`` has ``ROWS * UNIT`` bytes per thread."""
    format = BY_NAME[format_name]
    unpack_codes, unpack_scales = UNPACK[format_name]
    write_planes = _PLANES[format.bits]
    unit, scale_bytes, code_bytes = format.block_columns, format.scale_bytes, format.code_bytes
    blocks = unit // COLUMNS

    def kernel(
        thread, n_threads, ticket, source, row_bytes, block_bytes, codes, scales, scratch, n_rows, n_units
    ):  # fmt: skip
        buffer = scratch + thread * ROWS * UNIT
        tile = next_part(ticket)
        while tile * ROWS < n_rows:
            for u in range(n_units):
                left = n_rows - tile * ROWS
                for row in range(ROWS if left > ROWS else left):
                    block = source + (tile * ROWS + row) * row_bytes + u * block_bytes
                    unpack_codes(block, buffer + unit * row)
                    unpack_scales(block, scales + (tile * n_units + u) * scale_bytes, row)
                for b in range(blocks):
                    place = codes + ((tile * n_units + u) * blocks + b) * code_bytes
                    write_planes(buffer + COLUMNS * b, unit, place)
            tile = next_part(ticket)

    return kernel
