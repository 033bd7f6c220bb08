"""Encoding of 32 float32 for the cache, as in gguf.quants: 32 bytes of codes, then scale and minimum."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice.plugin.unstable import Coding
from pumice_cpu.kernels.common import inline
from pumice_cpu.kv_cache import BLOCK
from pumice_cpu.simd import (
    absolute,
    get_f32,
    load_f32,
    max_lanes,
    maximum,
    minimum,
    put_f32,
    splat_f32,
    store_i8,
    to_f32,
    truncate_to_i32,
)


@inline
def _inverse(scale):
    return splat_f32(np.float32(1) / scale if scale != np.float32(0) else np.float32(0))


@inline
def _encode_signed(source, codes):
    """Encode to 8-bit codes with a largest code of 127, rounding halves away from zero."""
    low, high = load_f32(source), load_f32(source + 64)
    scale = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
    inverse = _inverse(scale)
    for half in range(2):
        x = load_f32(source + 64 * half) * inverse
        whole = to_f32(truncate_to_i32(x))
        rest = x - whole
        store_i8(codes + 16 * half, truncate_to_i32(whole + to_f32(truncate_to_i32(rest + rest))))
    put_f32(codes + BLOCK, scale)


def _encode_around(offset: int) -> Any:
    """Encode so that the value farthest from 0 has code 0, and 0 has the code ``offset``."""

    @inline
    def encode(source, codes):
        low, high = load_f32(source), load_f32(source + 64)
        largest = max_lanes(maximum(absolute(low), absolute(high)))
        extreme, column = get_f32(source), 0
        while extreme != largest and -extreme != largest and column < BLOCK - 1:  # the first of the extremes
            column += 1
            extreme = get_f32(source + 4 * column)
        scale = extreme / np.float32(-offset)
        inverse = _inverse(scale)
        half, most = splat_f32(np.float32(offset + 0.5)), splat_f32(np.float32(2 * offset - 1))
        for part in range(2):
            x = load_f32(source + 64 * part) * inverse + half
            store_i8(codes + 16 * part, truncate_to_i32(minimum(x, most)))
        put_f32(codes + BLOCK, scale)

    return encode


def _encode_range(most_code: int) -> Any:
    """Encode so that the smallest value has code 0 and the largest ``most_code``."""

    @inline
    def encode(source, codes):
        low, high = load_f32(source), load_f32(source + 64)
        top = max_lanes(maximum(low, high))
        bottom = -max_lanes(maximum(splat_f32(np.float32(0)) - low, splat_f32(np.float32(0)) - high))
        scale = (top - bottom) / np.float32(most_code)
        inverse = _inverse(scale)
        half, most = splat_f32(np.float32(0.5)), splat_f32(np.float32(most_code))
        for part in range(2):
            x = (load_f32(source + 64 * part) - splat_f32(bottom)) * inverse + half
            store_i8(codes + 16 * part, truncate_to_i32(minimum(x, most)))
        put_f32(codes + BLOCK, scale)
        put_f32(codes + BLOCK + 4, bottom)

    return encode


@functools.cache
def encoder(coding: Coding) -> Any:
    """Return a function that encodes the 32 values at one address to another."""
    if coding.bits == 8:
        return _encode_signed
    return _encode_range((1 << coding.bits) - 1) if coding.has_minimum else _encode_around(coding.offset)
