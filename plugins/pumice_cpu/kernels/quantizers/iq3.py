"""IQ3_XXS and IQ3_S: four numbers per grid point."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import largest_of, take_signs
from pumice_cpu.kernels.quantizers.scales import largest
from pumice_cpu.kernels.quantizers.signed_points import (
    CODES,
    SCALES,
    SIGNS,
    clear,
    clear_group,
    fit,
    put_group,
    put_nibbles,
    put_with_signs,
    small_scales,
    weigh,
)
from pumice_cpu.simd import (
    get_f32,
    get_i32,
    put_f16,
    put_i32,
    put_u8,
)


def _iq3(weighted, even, reach, put):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256) if weighted else np.float32(0)
            column = 256 * block % n_columns
            for group in range(8):
                place = values + 1024 * block + 128 * group
                weigh(scratch, place, weights, column + 32 * group, 32, sigma, 0 if weighted else 1)
                for eight in range(4):
                    signs = take_signs(scratch, 8 * eight, even)
                    put_i32(scratch + SIGNS + 4 * (4 * group + eight), np.int32(signs))
                top = largest_of(scratch, 32)
                if top < np.float32(1e-8) if even else top == np.float32(0):
                    clear_group(scratch, group, 32, 4)
                else:
                    scale = fit(scratch, 32, 4, 3, 8, reach, 0.2, top, top / np.float32(15), not even)
                    put_group(scratch, group, 32, 4, 3, scale, 7 if even else 8)
            put(scratch, out, block)

    return quantize


@inline
def _put_iq3_xxs(scratch, out, block):
    put_with_signs(scratch, out + 98 * block, 98, 8, np.float32(1.0125))


@inline
def _put_iq3_s(scratch, out, block):
    """Store 8 bits of each code, the ninth bits, signs, and scales."""
    block_out = out + 110 * block
    clear(block_out, 110)
    for i in range(64):
        put_u8(block_out + 2 + i, np.int32(get_i32(scratch + CODES + 4 * i) & 255))
    for i in range(8):
        packed = 0
        for part in range(8):
            packed |= get_i32(scratch + CODES + 32 * i + 4 * part) >> 8 << part
        put_u8(block_out + 66 + i, np.int32(packed))
    for i in range(32):
        put_u8(block_out + 74 + i, get_i32(scratch + SIGNS + 4 * i))
    top = largest(scratch + SCALES, 8)
    if top != np.float32(0):
        d = top / np.float32(31)
        small_scales(scratch, 8, d)
        put_f16(block_out, d * np.float32(1.033))
        put_nibbles(scratch, block_out + 106, 4)


def iq3_xxs(kind):
    return _iq3(kind == "weighted", True, 15, _put_iq3_xxs)


def iq3_s(kind):
    return _iq3(kind == "weighted", False, 9, _put_iq3_s)
