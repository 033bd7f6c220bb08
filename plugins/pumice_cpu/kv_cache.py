"""The paged cache of one layer's keys and values: its memory layout.

Cells are stored in tiles of 16 neighbours, head by head: all tiles of the first head, then those of the next. A tile is
transposed: each column has 16 adjacent values, one per cell, so that a vector holds one column of 16 positions.

- floats: the values;
- 8-bit codes: an int8 per column and cell;
- 4-bit codes: 16 bytes per two columns, the even column in the low nibbles, the next in the high nibbles;
- 5-bit codes: the low four bits likewise, then 16 bits per column, the fifth bit of each cell;
- behind the codes, for each ``unit`` columns, 16 float16 scales, and 16 minimums if the type has them.

GGML's blocks of 32 columns run across a cell's whole row. If the width of a head is no multiple of 32, a block that two
heads share stores its scale in both: ``unit``, the greatest common divisor, is the number of columns with one scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import type_size
from pumice.plugin.unstable import CODINGS, KV_TYPES, Arena, Coding, KVState, Limits

CELLS = 16  # cells per tile
BLOCK = 32  # columns with one scale in GGML

# Supported by kernels/kv_cache.py: floats, and codes of this many bits.
FLOATS = ("f32", "f16", "bf16")
CODE_BITS = (4, 5, 8)

# Division of work in kernels/attention.py.
ROWS = 256  # maximum queries of a key head per item: they share decoded keys and values; half of them in short steps
MANY_ITEMS = 4  # for each thread, from which on items have ROWS queries
CHUNK = 64  # positions decoded at a time
PART = 256  # positions, whole chunks, whose softmax is merged with that of the positions before


class Scratch(NamedTuple):
    """Addresses of scratch memory of a thread: float32 arrays, except ``positions``. See ``scratch_at``."""

    queries: int  # [ROWS, k_width]
    keys: int  # [CHUNK / 16, k_dim, 16]
    columns: int  # [v_width, 16]: values in the cache's layout
    values: int  # [v_width / 16, CHUNK, 16]
    outputs: int  # [ROWS / n_rows, v_width / 16, n_rows, 16]
    weights: int  # [n_rows, CHUNK + 16]
    sums: int  # [ROWS, 16]
    maxima: int  # [ROWS / n_rows, 16]
    positions: int  # int64 [ROWS]
    merged: int  # outputs, maxima [ROWS] and sums [ROWS] of the preceding parts
    merged_maxima: int
    merged_sums: int
    end: int


def scratch_at(start: int, n_rows: int, k_dim: int, v_dim: int) -> Scratch:
    """Return a thread's scratch memory at an address; also compiled into the kernel. Widths are multiples of 32.

    Loads may read one vector of columns beyond the end.
    """
    k_width, v_width = (k_dim + 31) // 32 * 32, (v_dim + 31) // 32 * 32
    keys = start + 4 * ROWS * k_width
    columns = keys + 4 * CHUNK * k_dim
    values = columns + 64 * v_width
    outputs = values + 4 * CHUNK * v_width
    weights = outputs + 4 * ROWS * v_width
    sums = weights + 4 * n_rows * (CHUNK + 16)
    maxima = sums + 64 * ROWS
    positions = maxima + 64 * ROWS
    merged = positions + 8 * ROWS
    merged_maxima = merged + 4 * ROWS * v_width
    merged_sums = merged_maxima + 4 * ROWS
    end = merged_sums + 4 * ROWS
    return Scratch(
        start, keys, columns, values, outputs, weights, sums, maxima, positions, merged, merged_maxima, merged_sums, end
    )


STEP_CHUNK = 256  # positions of kernels/attention_step.py that share a maximum


class StepScratch(NamedTuple):
    """Addresses of scratch memory of a thread in kernels/attention_step.py: float32, and int64 addresses and rows."""

    queries: int  # [ROWS / 16, k_width, 16]
    outputs: int  # [ROWS / 16, v_width, 16]
    keys: int  # copies of tiles that are not in one place: [STEP_CHUNK / 16, k_dim, 16]
    values: int
    weights: int  # [STEP_CHUNK, 16]
    maxima: int  # [ROWS / 16, 16]
    sums: int
    limits: int  # [ROWS / 16, 2, 16]: first position that a query sees, and the one after the last
    rows: int  # of queries [ROWS]
    key_tiles: int  # addresses [STEP_CHUNK / 16]
    value_tiles: int
    end: int


def step_scratch_at(start: int, k_dim: int, v_dim: int) -> StepScratch:
    """Return a thread's scratch memory at an address; also compiled into the kernel."""
    outputs = start + 4 * ROWS * ((k_dim + 15) // 16 * 16)
    keys = outputs + 4 * ROWS * ((v_dim + 15) // 16 * 16)
    values = keys + 4 * STEP_CHUNK * k_dim
    weights = values + 4 * STEP_CHUNK * v_dim
    maxima = weights + 64 * STEP_CHUNK
    sums = maxima + 4 * ROWS
    limits = sums + 4 * ROWS
    rows = limits + 8 * ROWS
    key_tiles = rows + 8 * ROWS
    value_tiles = key_tiles + STEP_CHUNK // 2
    end = value_tiles + STEP_CHUNK // 2
    return StepScratch(start, outputs, keys, values, weights, maxima, sums, limits, rows, key_tiles, value_tiles, end)


MEMORY_CHUNK = 256  # positions of kernels/attention_memory.py that share a maximum
MEMORY_ROWS = 4  # queries in registers


class MemoryScratch(NamedTuple):
    """Addresses of scratch memory of a thread in kernels/attention_memory.py: float32, and int64 addresses and rows."""

    queries: int  # [MEMORY_ROWS, k_dim]
    outputs: int  # [MEMORY_ROWS, v_dim, 16]
    weights: int  # [MEMORY_ROWS, MEMORY_CHUNK]
    sums: int  # [MEMORY_ROWS, 16]
    maxima: int  # [16]
    rows: int  # of queries [MEMORY_ROWS]
    key_tiles: int  # addresses [MEMORY_CHUNK / 16]
    value_tiles: int
    end: int


def memory_scratch_at(start: int, k_dim: int, v_dim: int) -> MemoryScratch:
    """Return a thread's scratch memory at an address; also compiled into the kernel. Widths are multiples of 16."""
    outputs = start + 4 * MEMORY_ROWS * k_dim
    weights = outputs + 64 * MEMORY_ROWS * v_dim
    sums = weights + 4 * MEMORY_ROWS * MEMORY_CHUNK
    maxima = sums + 64 * MEMORY_ROWS
    rows = maxima + 64
    key_tiles = rows + 64
    value_tiles = key_tiles + MEMORY_CHUNK // 2
    end = value_tiles + MEMORY_CHUNK // 2
    return MemoryScratch(start, outputs, weights, sums, maxima, rows, key_tiles, value_tiles, end)


@dataclass(frozen=True)
class CacheType:
    """A cache type as the kernels see it. ``bits``: width of a value, or of its code."""

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
    """Return True if the kernels can store these keys and values. 4-bit codes of a pair of columns share bytes."""
    type = CacheType.of(limits.kv_type)
    supported = type.coding.is_affine and type.bits in CODE_BITS if type.coding else type.name in FLOATS
    return supported and limits.can_hold(state) and state.k_dim % 2 == state.v_dim % 2 == 0


class Cells:
    """The memory of one layer's keys, or values: ``n_heads`` times ``dim`` values per cell."""

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
        self._memory = self._arena.view(self.address - start, (self.nbytes,), "u1")
        self.layout = np.array([self.address, self.head_bytes, self.tile_bytes, dim, self.unit], np.int64)

    def blocks(self, block_size: int) -> NDArray[np.uint8]:
        """Return a view of the blocks, ``[n_blocks, n_heads, bytes]``; they must consist of whole tiles."""
        n_bytes = block_size // CELLS * self.tile_bytes
        return self._memory.reshape(self.nbytes // self.head_bytes, -1, n_bytes).swapaxes(0, 1)


class KVCache:
    """The keys and values of one layer; ``values`` is None if they are columns of the keys."""

    def __init__(self, state: KVState, limits: Limits) -> None:
        n_cells = limits.n_blocks[state.window] * limits.block_size

        def cells(dim: int) -> Cells:
            return Cells(state.name, limits.kv_type, n_cells, state.n_head_kv, dim)

        self.n_head_kv = state.n_head_kv
        self._block_size = limits.block_size
        self.keys = cells(state.k_dim)
        self.values = cells(state.v_dim) if state.v_dim else None
        self.nbytes = self.keys.nbytes + (self.values.nbytes if self.values else 0)

    @property
    def has_whole_tiles(self) -> bool:
        """True if blocks consist of whole tiles, so that each is apart from the others."""
        return self._block_size % CELLS == 0

    @property
    def blocks(self) -> list[NDArray[np.uint8]]:
        """Views of the keys and the values by block."""
        return [cells.blocks(self._block_size) for cells in (self.keys, self.values) if cells]
