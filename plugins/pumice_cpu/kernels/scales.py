"""Readers of the scales and minimums of a tile's 16 rows, for one block or half a block."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import Format
from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import (
    as_f32,
    load_f16,
    load_f32,
    load_i8,
    load_u8,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    to_f32,
)

# ``scales`` is the address of a tile's first scale, ``block`` counts blocks of 32 columns, ``half`` is 0 or 1.
# Formats with a scale for 256 columns store float16 scales, then float16 minimums if any, then bytes.


@inline
def _f16(scales, block, half):
    return load_f16(scales + 32 * block)


@inline
def _f16_beside_minimum(scales, block, half):
    return load_f16(scales + 64 * block)


@inline
def _f16_minimum(scales, block, half):
    return load_f16(scales + 64 * block + 32)


@inline
def _e8m0(scales, block, half):
    """Return 2^(e - 128): half of the format's value, since the table of codes is doubled."""
    return as_f32(shift_left_i32(load_u8(scales + 16 * block), np.int32(23))) * splat_f32(np.float32(0.5))


@inline
def _f32(scales, block, half):
    return load_f32(scales + 128 * block + 64 * half)


@inline
def _k32(scales, block, half):
    place = scales + 160 * (block >> 3)
    return load_f16(place) * to_f32(load_i8(place + 32 + 16 * (block & 7)))


@inline
def _k32_beside_minimum(scales, block, half):
    place = scales + 320 * (block >> 3)
    return load_f16(place) * to_f32(load_u8(place + 64 + 32 * (block & 7)))


@inline
def _k32_minimum(scales, block, half):
    place = scales + 320 * (block >> 3)
    return load_f16(place + 32) * to_f32(load_u8(place + 80 + 32 * (block & 7)))


@inline
def _k16(scales, block, half):
    place = scales + 288 * (block >> 3)
    return load_f16(place) * to_f32(load_i8(place + 32 + 32 * (block & 7) + 16 * half))


@inline
def _k16_beside_minimum(scales, block, half):
    place = scales + 320 * (block >> 3)
    both = load_u8(place + 64 + 32 * (block & 7) + 16 * half)
    return load_f16(place) * to_f32(both & splat_i32(np.int32(15)))


@inline
def _k16_minimum(scales, block, half):
    place = scales + 320 * (block >> 3)
    both = load_u8(place + 64 + 32 * (block & 7) + 16 * half)
    return load_f16(place + 32) * to_f32(shift_right_i32(both, np.int32(4)))


_SCALES = {
    "f16": _f16,
    "f16_min": _f16_beside_minimum,
    "e8m0": _e8m0,
    "f32": _f32,
    "k32": _k32,
    "k32_min": _k32_beside_minimum,
    "k16": _k16,
    "k16_min": _k16_beside_minimum,
}
_MINIMUMS = {"f16_min": _f16_minimum, "k32_min": _k32_minimum, "k16_min": _k16_minimum}


@functools.cache
def scale_reader(format: Format) -> Any:
    """Return a function of ``(scales, block, half)`` that loads the scales of the 16 rows."""
    return _SCALES[format.scales]


@functools.cache
def minimum_reader(format: Format) -> Any:
    """Like ``scale_reader``, for the value added to every weight of a block; None for formats without minimums."""
    return _MINIMUMS.get(format.scales)
