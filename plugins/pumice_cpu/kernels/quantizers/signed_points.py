"""Functions shared by IQ2 and IQ3: groups of a block as grid points and signs, with small scales."""

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
    take_trial,
    try_scale,
)
from pumice_cpu.kernels.quantizers.scales import largest, odd_code
from pumice_cpu.simd import (
    get_f32,
    get_i32,
    load_f32,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    splat_f32,
    square_root,
    store_f32,
)

# Offsets in the scratch memory, in bytes.
SCALES = AFTER  # scales of up to 16 groups
CODES = SCALES + 64  # up to 64 int32
SIGNS = CODES + 256  # 32 int32, one per 8 numbers
SMALL = SIGNS + 128  # 32 int32


@inline
def weigh(scratch, place, weights, column, n, sigma, kind):
    """Load ``n`` numbers, their weights and roots. kind 0: weighted; 1: x²; 2: x² plus a quarter of sigma."""
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
def fit(scratch, n, n_digits, bits, top, reach, step, divisor, scale, never_kept):
    """Find the best points for a group and return their scale; 0 or less for none.

    Tries ``(2 * top - 1 + step * i) / divisor`` as the inverse of the scale, for i from -reach to reach.
    ``never_kept``:
    search again for points that are on the grid, too.
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
def put_group(scratch, group, n, n_digits, bits, scale, sign_bits):
    """Store a group's codes, signs and scale; a negative scale flips all signs."""
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
def clear_group(scratch, group, n, n_digits):
    for piece in range(n // n_digits):
        put_i32(scratch + CODES + 4 * (n // n_digits * group + piece), np.int32(0))
    for eight in range(n // 8):
        put_i32(scratch + SIGNS + 4 * (n // 8 * group + eight), np.int32(0))
    put_f32(scratch + SCALES + 4 * group, np.float32(0))


@inline
def small_scales(scratch, n_groups, d):
    """Return 4 bits for each group's scale, which stand for an odd number."""
    inverse = np.float32(1) / d
    for group in range(n_groups):
        put_i32(scratch + SMALL + 4 * group, odd_code(inverse, get_f32(scratch + SCALES + 4 * group), 15))


@inline
def clear(out, n_bytes):
    for i in range(n_bytes):
        put_u8(out + i, np.int32(0))


@inline
def put_with_signs(scratch, out, block_bytes, n_codes, fudge):
    """Store a block whose 32 bits of signs and scale follow each group's codes (IQ2_XXS) or all codes (IQ3_XXS)."""
    top = largest(scratch + SCALES, 8)
    if top == np.float32(0):
        clear(out, block_bytes)
    else:
        d = top / np.float32(31)
        small_scales(scratch, 8, d)
        put_f16(out, d * fudge)
        for group in range(8):
            codes = out + 2 + 8 * group
            for i in range(n_codes):
                put_u8(codes + i, get_i32(scratch + CODES + 4 * (n_codes * group + i)))
            packed = np.int64(get_i32(scratch + SMALL + 4 * group)) << 28
            for i in range(4):
                packed |= np.int64(get_i32(scratch + SIGNS + 4 * (4 * group + i))) << 7 * i
            put_i32(codes + 4 if n_codes == 4 else out + 66 + 4 * group, np.int32(packed))


@inline
def put_nibbles(scratch, out, n):
    for i in range(n):
        both = get_i32(scratch + SMALL + 8 * i) | get_i32(scratch + SMALL + 8 * i + 4) << 4
        put_u8(out + i, np.int32(both))
