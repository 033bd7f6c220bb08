"""Lookup of rows of a table by id, as float32, bit-identical to ``dequantize``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import BY_NAME, COLUMNS
from pumice_cpu.formats import EMBEDDING_SCRATCH as SCRATCH
from pumice_cpu.kernels.common import inline, part_start
from pumice_cpu.kernels.linear_float import LOADS
from pumice_cpu.kernels.scales import minimum_reader, scale_reader
from pumice_cpu.kernels.unpack import UNPACK
from pumice_cpu.simd import (
    get_i32,
    get_i64,
    lane,
    load_bytes,
    load_i8,
    load_u8,
    lookup,
    put_f32,
    splat_f32,
    splat_i32,
    store_bytes,
    store_f32,
    to_f32,
)

CODES = 320  # bytes of a block's codes, rounded up to loads of 64


@functools.cache
def code_reader(format: Any) -> Any:
    """Return a function that loads 16 one-byte codes as float32, with the format's offset subtracted."""
    offset = np.int32(format.offset)

    @inline
    def read(place):
        return to_f32(load_u8(place) - splat_i32(offset))

    @inline
    def read_signed(place):
        return to_f32(load_i8(place))

    return read_signed if format.signed else read


def float_rows(kind: str) -> Any:
    """Return a kernel for rows of plain numbers by the int32 ``ids [count, n_ids]``."""
    size, load, get = LOADS[kind]

    def kernel(thread, n_threads, count, ids, weights, y, n_ids, width):
        n_all, whole = get_i64(count) * n_ids, width // 16 * 16
        for index in range(part_start(n_all, thread, n_threads), part_start(n_all, thread + 1, n_threads)):
            row, result = weights + size * width * np.int64(get_i32(ids + 4 * index)), y + 4 * width * index
            for column in range(0, whole, 16):
                store_f32(result + 4 * column, load(row + size * column))
            for column in range(whole, width):
                put_f32(result + 4 * column, get(row + size * column))

    return kernel


def rows(format_name: str) -> Any:
    """Return a kernel for rows of a quantized format by the int32 ``ids [count, n_ids]``.

    ``scratch`` has SCRATCH bytes per thread, for a block's codes and for its scales in the layout of the first row of a
    tile. ``table`` is as for ``linear.matvec``.
    """
    format = BY_NAME[format_name]
    unpack_codes, unpack_scales = UNPACK[format_name]
    read_codes, read_scale, read_minimum = code_reader(format), scale_reader(format), minimum_reader(format)
    columns, has_table, has_minimum = format.block_columns, bool(format.table), read_minimum is not None

    def kernel(thread, n_threads, count, ids, weights, row_bytes, block_bytes, table, y, n_ids, n_blocks, scratch):
        codes = scratch + thread * SCRATCH
        scales = codes + CODES
        n_all = get_i64(count) * n_ids * n_blocks
        for index in range(part_start(n_all, thread, n_threads), part_start(n_all, thread + 1, n_threads)):
            row = np.int64(get_i32(ids + 4 * (index // n_blocks)))
            block = weights + row * row_bytes + index % n_blocks * block_bytes
            unpack_codes(block, codes)
            unpack_scales(block, scales, 0)
            if has_table:
                for column in range(0, columns, 64):
                    store_bytes(codes + column, lookup(load_bytes(table), load_bytes(codes + column)))
            for column in range(0, columns, 16):
                part, half = column // COLUMNS, column // 16 % 2
                value = read_codes(codes + column) * splat_f32(lane(read_scale(scales, part, half), 0))
                if has_minimum:
                    value = value + splat_f32(lane(read_minimum(scales, part, half), 0))
                store_f32(y + 4 * (columns * index + column), value)

    return kernel
