"""Extraction of codes from the bit planes of a block of weights: eight vectors, one per four columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.formats import Format
from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import (
    get_i64,
    high_nibbles,
    load_bytes,
    lookup,
    low_nibbles,
    shift_left,
    two_bits,
    where_bits,
)


@inline
def _codes_8(codes, place):
    for group in range(8):
        codes[group] = load_bytes(place + 64 * group)


@inline
def _codes_4(codes, place):
    for vector in range(4):
        both = load_bytes(place + 64 * vector)
        codes[vector] = low_nibbles(both)
        codes[4 + vector] = high_nibbles(both)


@inline
def _codes_2(codes, place):
    for vector in range(2):
        all = load_bytes(place + 64 * vector)
        for group in range(4):
            codes[4 * vector + group] = two_bits(all, group)


@inline
def _codes_3(codes, place):
    _codes_2(codes, place)
    for group in range(8):
        codes[group] = codes[group] | where_bits(get_i64(place + 128 + 8 * group), np.int32(4))


@inline
def _codes_5(codes, place):
    _codes_4(codes, place)
    for group in range(8):
        codes[group] = codes[group] | where_bits(get_i64(place + 256 + 8 * group), np.int32(16))


@inline
def _codes_6(codes, place):
    _codes_4(codes, place)
    for vector in range(2):
        all = load_bytes(place + 256 + 64 * vector)
        for group in range(4):
            codes[4 * vector + group] = codes[4 * vector + group] | shift_left(two_bits(all, group), 4)


_BY_BITS = {2: _codes_2, 3: _codes_3, 4: _codes_4, 5: _codes_5, 6: _codes_6, 8: _codes_8}


@functools.cache
def codes_reader(format: Format) -> Any:
    """Return a function that loads the codes of a block into eight registers.

    ``table`` is the address of the format's 16 values, repeated four times, if the format has a table.
    """
    plain = _BY_BITS[format.bits]
    if not format.table:

        @inline
        def read(codes, place, table):
            plain(codes, place)

        return read

    @inline
    def look_up(codes, place, table):
        plain(codes, place)
        values = load_bytes(table)
        for group in range(8):
            codes[group] = lookup(values, codes[group])

    return look_up
