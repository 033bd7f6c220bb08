"""The paged cache of one layer's keys and values: how it is laid out, and its memory.

Cells are kept in tiles of 16 neighbours, head by head: all tiles of the first head, then those of the next.
A tile is transposed: for each column 16 values, one a cell, so that a vector holds one column of 16 positions.

- floats: the values;
- codes of 8 bits: an int8 for each column and cell;
- codes of 4 bits: those of an even column in the low and of the next in the high nibbles of 16 bytes;
- codes of 5 bits: so the low four, then for each column 16 bits, the fifth of each cell;
- behind the codes, for each ``unit`` columns, 16 float16 scales, and 16 minimums where the type has them.

GGML's blocks of 32 columns run over a cell's whole row. Where heads are no multiple of 32, a block that two heads
share has its scale in both: ``unit`` columns, the largest common divisor, always have one scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pumice.plugin import CODINGS, KV_TYPES, Arena, Coding, KVState, Limits, type_size

CELLS = 16  # in a tile
BLOCK = 32  # columns that GGML gives one scale

# What kernels/kv_cache.py has: floats, and codes of so many bits.
FLOATS = ("f32", "f16", "bf16")
CODE_BITS = (4, 5, 8)

# How kernels/attention.py divides its work.
ROWS = 128  # queries of a key head that decoded keys and values are used for
CHUNK = 64  # positions decoded at a time
PART = 256  # positions, whole chunks, that are attended to by themselves and then merged with those before


class Scratch(NamedTuple):
    """Addresses of what a thread attends with: float32 arrays, but for the positions. See ``scratch_at``."""

    queries: int  # [ROWS, k_width]
    keys: int  # [CHUNK / 16, k_dim, 16]
    columns: int  # [v_width, 16]: values as they come out of the cache
    values: int  # [v_width / 16, CHUNK, 16]
    outputs: int  # [ROWS / n_rows, v_width / 16, n_rows, 16]
    weights: int  # [n_rows, CHUNK + 16]
    sums: int  # [ROWS, 16]
    maxima: int  # [ROWS / n_rows, 16]
    places: int  # int64 [ROWS]: the positions
    merged: int  # outputs, maxima [ROWS] and sums [ROWS] of the parts before
    merged_maxima: int
    merged_sums: int
    end: int


def scratch_at(start: int, n_rows: int, k_dim: int, v_dim: int) -> Scratch:
    """A thread's scratch memory from an address on; compiled into the kernel too. Widths are multiples of 32.

    Loads may go one vector of columns beyond the end.
    """
    k_width, v_width = (k_dim + 31) // 32 * 32, (v_dim + 31) // 32 * 32
    keys = start + 4 * ROWS * k_width
    columns = keys + 4 * CHUNK * k_dim
    values = columns + 64 * v_width
    outputs = values + 4 * CHUNK * v_width
    weights = outputs + 4 * ROWS * v_width
    sums = weights + 4 * n_rows * (CHUNK + 16)
    maxima = sums + 64 * ROWS
    places = maxima + 64 * ROWS
    merged = places + 8 * ROWS
    merged_maxima = merged + 4 * ROWS * v_width
    merged_sums = merged_maxima + 4 * ROWS
    end = merged_sums + 4 * ROWS
    return Scratch(
        start, keys, columns, values, outputs, weights, sums, maxima, places, merged, merged_maxima, merged_sums, end
    )


@dataclass(frozen=True)
class CacheType:
    """A type of the cache as the kernels see it; ``bits`` of a value, or of its code."""

    name: str
    bits: int
    coding: Coding | None

    @classmethod
    def of(cls, name: str) -> CacheType:
        type = KV_TYPES[name]
        coding = CODINGS.get(type)
        return cls(name, coding.bits if coding else 8 * type_size(type), coding)

    @property
    def code_bytes(self) -> int:
        """Bytes of the values, or codes, of one column of a tile."""
        return CELLS * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales and minimums of one unit of a tile."""
        return 0 if self.coding is None else 2 * CELLS * (1 + self.coding.has_minimum)


def can_hold(state: KVState, limits: Limits) -> bool:
    """Whether the kernels can keep these keys and values. Pairs of columns share bytes of 4-bit codes."""
    type = CacheType.of(limits.kv_type)
    known = type.coding.is_affine and type.bits in CODE_BITS if type.coding else type.name in FLOATS
    return known and limits.can_hold(state) and state.k_dim % 2 == state.v_dim % 2 == 0


class Cells:
    """Memory for the keys, or the values, of one layer: ``n_heads`` times ``dim`` values in each cell."""

    def __init__(self, name: str, kv_type: str, n_cells: int, n_heads: int, dim: int) -> None:
        type = CacheType.of(kv_type)
        self.quantized = type.coding is not None
        self.dim = dim
        self.unit = math.gcd(BLOCK, dim)
        self.n_columns = n_heads * dim
        self.tile_bytes = dim * type.code_bytes + dim // self.unit * type.scale_bytes
        self.head_bytes = -(-n_cells // CELLS) * self.tile_bytes
        self.nbytes = n_heads * self.head_bytes
        self._arena = Arena(self.nbytes + 64, f"KV cache {name}")
        start = int(self._arena.view(0, (0,), "u1").ctypes.data)
        self.address = start + -start % 64
        self.layout = np.array([self.address, self.head_bytes, self.tile_bytes, dim, self.unit], np.int64)


class KVCache:
    """The keys and values of one layer; ``values`` is None where they are inside the keys."""

    def __init__(self, state: KVState, limits: Limits) -> None:
        n_cells = limits.n_blocks[state.window] * limits.block_size

        def cells(dim: int) -> Cells:
            return Cells(state.name, limits.kv_type, n_cells, state.n_head_kv, dim)

        self.n_head_kv = state.n_head_kv
        self.keys = cells(state.k_dim)
        self.values = cells(state.v_dim) if state.v_dim else None
        self.nbytes = self.keys.nbytes + (self.values.nbytes if self.values else 0)
