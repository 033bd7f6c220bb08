"""IQ2_XXS, IQ2_XS and IQ2_S: eight numbers per grid point."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import (
    W,
    X,
    best_trial,
    fit_again,
    largest_of,
    take_signs,
    take_trial,
    try_scale,
)
from pumice_cpu.kernels.quantizers.scales import largest, share_by_descent
from pumice_cpu.kernels.quantizers.signed_points import (
    CODES,
    SCALES,
    SIGNS,
    SMALL,
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
    put_u16,
)


def iq2_xxs(kind):
    """8 groups of 32, each with 4 one-byte codes and 4 times 7 signs."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = get_f32(sums + 4 * block) / np.float32(256)
            column = 256 * block % n_columns
            for group in range(8):
                place = values + 1024 * block + 128 * group
                weigh(scratch, place, weights, column + 32 * group, 32, sigma, 0)
                _fit_iq2_xxs(scratch, group)
            put_with_signs(scratch, out + 66 * block, 66, 4, np.float32(1))

    return quantize


@inline
def _fit_iq2_xxs(scratch, group):
    for eight in range(4):
        put_i32(scratch + SIGNS + 4 * (4 * group + eight), np.int32(take_signs(scratch, 8 * eight, True)))
    start = np.float32(0)
    if largest_of(scratch, 32) >= np.float32(1e-15):
        start = share_by_descent(scratch + X, scratch + W, 32, 4, scratch + SMALL)
    divisor = start * np.float32(3)
    if divisor > np.float32(0):
        scale = _fit_points_iq2_xxs(scratch, start, divisor)
        put_group(scratch, group, 32, 8, 2, scale, 7)
    else:
        clear_group(scratch, group, 32, 8)


@inline
def _fit_points_iq2_xxs(scratch, start, divisor):
    """Like ``fit``, but always search for points again with the best scale."""
    for trial in range(13):
        inverse = (np.float32(5) + np.float32(trial - 6) * np.float32(0.1)) / divisor
        try_scale(scratch, trial, 32, 8, 2, 3, inverse)
    chosen, scale = best_trial(scratch, 32, 13, start)
    take_trial(scratch, 32, chosen)
    if scale > np.float32(0):
        scale = fit_again(scratch, 32, 8, 2, 3, scale, np.int64(0))
    return scale


def _iq2(weight_kind, twice, even, smallest, put):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            total = get_f32(sums + 4 * block)
            sigma = (np.float32(2) * total if twice else total) / np.float32(256)
            column = 256 * block % n_columns
            for group in range(16):
                place = values + 1024 * block + 64 * group
                weigh(scratch, place, weights, column + 16 * group, 16, sigma, weight_kind)
                for eight in range(2):
                    signs = take_signs(scratch, 8 * eight, even)
                    put_i32(scratch + SIGNS + 4 * (2 * group + eight), np.int32(signs))
                top = largest_of(scratch, 16)
                if top < np.float32(smallest):
                    clear_group(scratch, group, 16, 8)
                else:
                    scale = fit(scratch, 16, 8, 2, 3, 9, 0.1, top, top / np.float32(5), False)
                    put_group(scratch, group, 16, 8, 2, scale, 7 if even else 8)
            put(scratch, out, block)

    return quantize


@inline
def _put_iq2_xs(scratch, out, block):
    """Store 9 bits of code and 7 of signs, then scales."""
    block_out = out + 74 * block
    top = largest(scratch + SCALES, 16)
    if top == np.float32(0):
        clear(block_out, 74)
    else:
        d = top / np.float32(31)
        small_scales(scratch, 16, d)
        put_f16(block_out, d)
        for i in range(32):
            both = get_i32(scratch + CODES + 4 * i) | get_i32(scratch + SIGNS + 4 * i) << 9
            put_u16(block_out + 2 + 2 * i, np.int32(both))
        put_nibbles(scratch, block_out + 66, 8)


@inline
def _put_iq2_s(scratch, out, block):
    """Store 8 bits of each code, signs, the high 2 bits of codes, and scales; store codes even for a scale of 0."""
    block_out = out + 82 * block
    clear(block_out, 82)
    for i in range(32):
        put_u8(block_out + 2 + i, np.int32(get_i32(scratch + CODES + 4 * i) & 255))
        put_u8(block_out + 34 + i, get_i32(scratch + SIGNS + 4 * i))
    for i in range(8):
        packed = 0
        for part in range(4):
            packed |= get_i32(scratch + CODES + 16 * i + 4 * part) >> 8 << 2 * part
        put_u8(block_out + 66 + i, np.int32(packed))
    top = largest(scratch + SCALES, 16)
    if top != np.float32(0):
        d = top / np.float32(31)
        small_scales(scratch, 16, d)
        put_f16(block_out, d * np.float32(0.9875))
        put_nibbles(scratch, block_out + 74, 8)


def iq2_xs(kind):
    return _iq2(0, False, True, 1e-15, _put_iq2_xs)


def iq2_s(kind):
    return _iq2(0 if kind == "weighted" else 2, True, False, 1e-8, _put_iq2_s)
