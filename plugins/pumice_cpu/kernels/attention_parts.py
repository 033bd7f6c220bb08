"""How the work of attention is cut into parts, and what kernels/attention.py knows of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kv_cache import ROWS
from pumice_cpu.simd import get_i64, splat_f32

LOWEST = np.float32(-1e38)  # below any score, but finite, so that differences are numbers


@inline
def zero():
    return splat_f32(np.float32(0))


@inline
def first_seen(position, window, length):
    """The first position that a causal query attends to."""
    return position - window + 1 if window != 0 and position >= window else np.int64(0)


@inline
def end_seen(position, window, length):
    """The position after the last that a causal query attends to."""
    return position + 1


@inline
def first_in_chunk(position, window, length):
    return position // window * window


@inline
def first_near(position, window, length):
    return position - window // 2 if window != 0 and position >= window // 2 else np.int64(0)


@inline
def end_near(position, window, length):
    return position + window // 2 + 1 if window != 0 and position + window // 2 < length else length


#: Which positions a query attends to, by what masks the others: the functions that give the first and the end.
SEEN = {"causal": (first_seen, end_seen), "chunk": (first_in_chunk, end_seen), "near": (first_near, end_near)}


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
    window: int  # positions that a query attends to; 0: no bound
    part_size: int  # positions
    at_once: int  # rows in registers


class Bias(NamedTuple):
    """What is added to scores: rows of ``table``, one a query head, ``stride`` long; ``zero``: of the own position."""

    table: int
    stride: int
    zero: int


class Part(NamedTuple):
    """``n`` rows from ``row0`` on, of a sequence and a key head, with positions ``first`` to ``end``."""

    token: int  # the sequence's first in the batch
    past: int  # its position
    length: int  # positions that the sequence has keys for
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


def part_finder(mask: str) -> Any:
    """A function that says which part of a sequence a number is: heads go first, then parts of the positions, then
    rows, from the last, which take longest.
    """
    first_of, end_of = SEEN[mask]

    @inline
    def part_of(shape, number, n_parts, n_head_kv, token, past, n_tokens, length, blocks):
        head, rest = number % n_head_kv, number // n_head_kv
        part = first_of(past, shape.window, length) // shape.part_size + rest % n_parts
        count = n_tokens * shape.group
        row0 = ((count + ROWS - 1) // ROWS - 1 - rest // n_parts) * ROWS
        n = count - row0 if count - row0 < ROWS else ROWS
        start, stop = part * shape.part_size, (part + 1) * shape.part_size
        first = first_of(past + row0 // shape.group, shape.window, length)
        end = end_of(past + (row0 + n - 1) // shape.group, shape.window, length)
        first, end = first if first > start else start, end if end < stop else stop
        return Part(token, past, length, blocks, head, row0, n, rest % n_parts, first, end)

    return part_of
