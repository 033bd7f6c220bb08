"""How the work of attention is cut into parts, and what kernels/attention.py knows of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kv_cache import ROWS
from pumice_cpu.simd import get_i64


@inline
def first_seen(position, window):
    """The first position that a query attends to."""
    return position - window + 1 if window != 0 and position >= window else np.int64(0)


class CellLayout(NamedTuple):
    """Where the keys, or the values, of a layer lie: the five int64 of ``kv_cache.Cells.layout``."""

    cache: int
    head_bytes: int
    tile_bytes: int
    dim: int
    unit: int


class Shape(NamedTuple):
    """What all parts of the work have in common."""

    n_head: int
    group: int  # query heads of a key head
    k_dim: int
    v_dim: int
    k_width: int  # columns of queries, and of values: filled up
    v_width: int
    window: int  # positions that a query attends to; 0: all
    part_size: int  # positions
    chunk_size: int  # positions decoded at a time
    at_once: int  # rows in registers


class Part(NamedTuple):
    """``n`` rows from ``row0`` on, of a sequence and a key head, with positions ``first`` to ``end``."""

    token: int  # the sequence's first in the batch
    past: int  # its position
    blocks: int  # address of the sequence's block table
    head: int  # of keys
    row0: int
    n: int
    number: int  # of the part of the positions, from the first that the sequence needs
    first: int
    end: int


@inline
def layout_at(place):
    return CellLayout(get_i64(place), get_i64(place + 8), get_i64(place + 16), get_i64(place + 24), get_i64(place + 32))


@inline
def part_of(shape, number, n_parts, n_head_kv, token, past, n_tokens, blocks):
    """Part ``number`` of a sequence: heads go first, then parts of the positions, then rows, from the last, which take
    longest.
    """
    head, rest = number % n_head_kv, number // n_head_kv
    part = first_seen(past, shape.window) // shape.part_size + rest % n_parts
    count = n_tokens * shape.group
    row0 = ((count + ROWS - 1) // ROWS - 1 - rest // n_parts) * ROWS
    n = count - row0 if count - row0 < ROWS else ROWS
    start, stop = part * shape.part_size, (part + 1) * shape.part_size
    first, end = first_seen(past + row0 // shape.group, shape.window), past + (row0 + n - 1) // shape.group + 1
    first, end = first if first > start else start, end if end < stop else stop
    return Part(token, past, blocks, head, row0, n, rest % n_parts, first, end)
