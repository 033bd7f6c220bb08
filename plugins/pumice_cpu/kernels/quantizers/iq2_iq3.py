"""IQ2 and IQ3: groups of a block as points of a grid and signs, with a few bits of scale each."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import (
    AFTER,
    ON_GRID,
    ROOT,
    W,
    X,
    best_trial,
    code_of,
    fit_again,
    largest_of,
    take_signs,
    take_trial,
    try_scale,
)
from pumice_cpu.kernels.quantizers.scales import share_by_descent
from pumice_cpu.simd import (
    get_f32,
    get_i32,
    load_f32,
    nearest,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    put_u16,
    splat_f32,
    square_root,
    store_f32,
)

# Places in the scratch memory, in bytes.
SCALES = AFTER  # of up to 16 groups
CODES = SCALES + 64  # up to 64 int32
SIGNS = CODES + 256  # 32 int32, of 8 numbers each
SMALL = SIGNS + 128  # 32 int32


@inline
def _weigh(scratch, place, weights, column, n, sigma, kind):
    """Numbers, weights and their roots of ``n`` numbers. kind 0: weighted; 1: x²; 2: x² and a quarter of sigma."""
    for part in range(n // 16):
        x = load_f32(place + 64 * part)
        store_f32(scratch + X + 64 * part, x)
        if kind == 0:
            w = load_f32(weights + 4 * column + 64 * part) * square_root(splat_f32(sigma) + x * x)
        elif kind == 1:
            w = x * x
        else:
            w = splat_f32(np.float32(0.25) * sigma) + x * x
        store_f32(scratch + W + 64 * part, w)
        store_f32(scratch + ROOT + 64 * part, square_root(w))


@inline
def _fit(scratch, n, n_digits, bits, top, reach, step, divisor, scale, never_kept):
    """The best points for a group and their scale, 0 or below for none.

    Tries ``(2 * top - 1 + step * i) / divisor`` as the inverse of the scale, for i from -reach to reach.
    never_kept: points on the grid are looked for again, too.
    """
    for trial in range(2 * reach + 1):
        inverse = (np.float32(2 * top - 1) + np.float32(trial - reach) * np.float32(step)) / divisor
        try_scale(scratch, trial, n, n_digits, bits, top, inverse)
    chosen, scale = best_trial(scratch, n, 2 * reach + 1, scale)
    take_trial(scratch, n, chosen)
    every = (1 << (n // n_digits)) - 1
    kept = np.int64(0 if never_kept else every)
    if chosen >= 0:
        kept = np.int64(get_i32(scratch + ON_GRID + 4 * chosen))
    if kept != every and scale > np.float32(0):
        scale = fit_again(scratch, n, n_digits, bits, top, scale, np.int64(0) if never_kept else kept)
    return scale


@inline
def _put_group(scratch, group, n, n_digits, bits, scale, sign_bits):
    """Keep a group's codes, signs and scale; a scale below 0 turns all signs."""
    for piece in range(n // n_digits):
        code = code_of(scratch, n_digits * piece, n_digits, bits)
        put_i32(scratch + CODES + 4 * (n // n_digits * group + piece), code)
    if scale < np.float32(0):
        scale = -scale
        for eight in range(n // 8):
            place = scratch + SIGNS + 4 * (n // 8 * group + eight)
            put_i32(place, np.int32(~get_i32(place) & ((1 << sign_bits) - 1)))
    put_f32(scratch + SCALES + 4 * group, scale)


@inline
def _clear_group(scratch, group, n, n_digits):
    for piece in range(n // n_digits):
        put_i32(scratch + CODES + 4 * (n // n_digits * group + piece), np.int32(0))
    for eight in range(n // 8):
        put_i32(scratch + SIGNS + 4 * (n // 8 * group + eight), np.int32(0))
    put_f32(scratch + SCALES + 4 * group, np.float32(0))


@inline
def _small_scales(scratch, n_groups, d):
    """4 bits for each group's scale, which stand for an odd number."""
    inverse = np.float32(1) / d
    for group in range(n_groups):
        code = nearest(np.float32(0.5) * (inverse * get_f32(scratch + SCALES + 4 * group) - np.float32(1)))
        code = code if code > 0 else np.int32(0)
        put_i32(scratch + SMALL + 4 * group, code if code < 15 else np.int32(15))


@inline
def _largest_scale(scratch, n_groups):
    top = np.float32(0)
    for group in range(n_groups):
        scale = get_f32(scratch + SCALES + 4 * group)
        top = scale if scale > top else top
    return top


@inline
def _clear(out, n_bytes):
    for i in range(n_bytes):
        put_u8(out + i, np.int32(0))


# --- IQ2_XXS


def iq2_xxs(kind):
    """8 groups of 32, each with 4 codes of a byte and 4 times 7 signs."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = get_f32(sums + 4 * block) / np.float32(256)
            column = 256 * block % n_columns
            for group in range(8):
                place = values + 1024 * block + 128 * group
                _weigh(scratch, place, weights, column + 32 * group, 32, sigma, 0)
                _fit_iq2_xxs(scratch, group)
            _put_with_signs(scratch, out + 66 * block, 66, 4, np.float32(1))

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
        _put_group(scratch, group, 32, 8, 2, scale, 7)
    else:
        _clear_group(scratch, group, 32, 8)


@inline
def _fit_points_iq2_xxs(scratch, start, divisor):
    """As ``_fit``, but that the points are always looked for again with the scale that was found."""
    for trial in range(13):
        inverse = (np.float32(5) + np.float32(trial - 6) * np.float32(0.1)) / divisor
        try_scale(scratch, trial, 32, 8, 2, 3, inverse)
    chosen, scale = best_trial(scratch, 32, 13, start)
    take_trial(scratch, 32, chosen)
    if scale > np.float32(0):
        scale = fit_again(scratch, 32, 8, 2, 3, scale, np.int64(0))
    return scale


@inline
def _put_with_signs(scratch, out, block_bytes, n_codes, fudge):
    """A block whose 32 bits of signs and scale follow each group's codes (IQ2_XXS) or all of them (IQ3_XXS)."""
    top = _largest_scale(scratch, 8)
    if top == np.float32(0):
        _clear(out, block_bytes)
    else:
        d = top / np.float32(31)
        _small_scales(scratch, 8, d)
        put_f16(out, d * fudge)
        for group in range(8):
            codes = out + 2 + 8 * group
            for i in range(n_codes):
                put_u8(codes + i, get_i32(scratch + CODES + 4 * (n_codes * group + i)))
            packed = np.int64(get_i32(scratch + SMALL + 4 * group)) << 28
            for i in range(4):
                packed |= np.int64(get_i32(scratch + SIGNS + 4 * (4 * group + i))) << 7 * i
            put_i32(codes + 4 if n_codes == 4 else out + 66 + 4 * group, np.int32(packed))


# --- IQ2_XS and IQ2_S


def _iq2(weight_kind, twice, even, smallest, put):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            total = get_f32(sums + 4 * block)
            sigma = (np.float32(2) * total if twice else total) / np.float32(256)
            column = 256 * block % n_columns
            for group in range(16):
                place = values + 1024 * block + 64 * group
                _weigh(scratch, place, weights, column + 16 * group, 16, sigma, weight_kind)
                for eight in range(2):
                    signs = take_signs(scratch, 8 * eight, even)
                    put_i32(scratch + SIGNS + 4 * (2 * group + eight), np.int32(signs))
                top = largest_of(scratch, 16)
                if top < np.float32(smallest):
                    _clear_group(scratch, group, 16, 8)
                else:
                    scale = _fit(scratch, 16, 8, 2, 3, 9, 0.1, top, top / np.float32(5), False)
                    _put_group(scratch, group, 16, 8, 2, scale, 7 if even else 8)
            put(scratch, out, block)

    return quantize


@inline
def _put_iq2_xs(scratch, out, block):
    """9 bits of code and 7 of signs, then scales."""
    here = out + 74 * block
    top = _largest_scale(scratch, 16)
    if top == np.float32(0):
        _clear(here, 74)
    else:
        d = top / np.float32(31)
        _small_scales(scratch, 16, d)
        put_f16(here, d)
        for i in range(32):
            both = get_i32(scratch + CODES + 4 * i) | get_i32(scratch + SIGNS + 4 * i) << 9
            put_u16(here + 2 + 2 * i, np.int32(both))
        _put_nibbles(scratch, here + 66, 8)


@inline
def _put_iq2_s(scratch, out, block):
    """8 bits of each code, signs, the high 2 bits of codes, scales; codes are there even if there is no scale."""
    here = out + 82 * block
    _clear(here, 82)
    for i in range(32):
        put_u8(here + 2 + i, np.int32(get_i32(scratch + CODES + 4 * i) & 255))
        put_u8(here + 34 + i, get_i32(scratch + SIGNS + 4 * i))
    for i in range(8):
        packed = 0
        for part in range(4):
            packed |= get_i32(scratch + CODES + 16 * i + 4 * part) >> 8 << 2 * part
        put_u8(here + 66 + i, np.int32(packed))
    top = _largest_scale(scratch, 16)
    if top != np.float32(0):
        d = top / np.float32(31)
        _small_scales(scratch, 16, d)
        put_f16(here, d * np.float32(0.9875))
        _put_nibbles(scratch, here + 74, 8)


@inline
def _put_nibbles(scratch, out, n):
    for i in range(n):
        both = get_i32(scratch + SMALL + 8 * i) | get_i32(scratch + SMALL + 8 * i + 4) << 4
        put_u8(out + i, np.int32(both))


def iq2_xs(kind):
    return _iq2(0, False, True, 1e-15, _put_iq2_xs)


def iq2_s(kind):
    return _iq2(0 if kind == "weighted" else 2, True, False, 1e-8, _put_iq2_s)


# --- IQ3_XXS and IQ3_S


def _iq3(weighted, even, reach, put):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256) if weighted else np.float32(0)
            column = 256 * block % n_columns
            for group in range(8):
                place = values + 1024 * block + 128 * group
                _weigh(scratch, place, weights, column + 32 * group, 32, sigma, 0 if weighted else 1)
                for eight in range(4):
                    signs = take_signs(scratch, 8 * eight, even)
                    put_i32(scratch + SIGNS + 4 * (4 * group + eight), np.int32(signs))
                top = largest_of(scratch, 32)
                if top < np.float32(1e-8) if even else top == np.float32(0):
                    _clear_group(scratch, group, 32, 4)
                else:
                    scale = _fit(scratch, 32, 4, 3, 8, reach, 0.2, top, top / np.float32(15), not even)
                    _put_group(scratch, group, 32, 4, 3, scale, 7 if even else 8)
            put(scratch, out, block)

    return quantize


@inline
def _put_iq3_xxs(scratch, out, block):
    _put_with_signs(scratch, out + 98 * block, 98, 8, np.float32(1.0125))


@inline
def _put_iq3_s(scratch, out, block):
    """8 bits of each code, the ninth of all, signs, scales."""
    here = out + 110 * block
    _clear(here, 110)
    for i in range(64):
        put_u8(here + 2 + i, np.int32(get_i32(scratch + CODES + 4 * i) & 255))
    for i in range(8):
        packed = 0
        for part in range(8):
            packed |= get_i32(scratch + CODES + 32 * i + 4 * part) >> 8 << part
        put_u8(here + 66 + i, np.int32(packed))
    for i in range(32):
        put_u8(here + 74 + i, get_i32(scratch + SIGNS + 4 * i))
    top = _largest_scale(scratch, 8)
    if top != np.float32(0):
        d = top / np.float32(31)
        _small_scales(scratch, 8, d)
        put_f16(here, d * np.float32(1.033))
        _put_nibbles(scratch, here + 106, 4)


def iq3_xxs(kind):
    return _iq3(kind == "weighted", True, 15, _put_iq3_xxs)


def iq3_s(kind):
    return _iq3(kind == "weighted", False, 9, _put_iq3_s)
