"""Division of attention into work items, and the description of an item for kernels/attention.py."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from pumice_cpu.kernels.common import inline, next_part
from pumice_cpu.kv_cache import MANY_ITEMS, ROWS
from pumice_cpu.simd import get_i32, get_i64, splat_f32

LOWEST = np.float32(-1e38)  # below any score, but finite, so that differences are numbers


@inline
def zero():
    return splat_f32(np.float32(0))


@inline
def first_seen(position, window, length):
    """Return the first position that a causal query attends to."""
    return position - window + 1 if window != 0 and position >= window else np.int64(0)


@inline
def end_seen(position, window, length):
    """Return the position after the last one that a causal query attends to."""
    return position + 1


@inline
def first_in_chunk(position, window, length):
    return position // window * window


@inline
def end_of_chunk(position, window, length):
    end = position // window * window + window
    return end if end < length else length


@inline
def first_near(position, window, length):
    return position - window // 2 if window != 0 and position >= window // 2 else np.int64(0)


@inline
def end_near(position, window, length):
    return position + window // 2 + 1 if window != 0 and position + window // 2 < length else length


#: By mask: the functions that return the first attended position of a query, and the one after the last.
SEEN = {
    "causal": (first_seen, end_seen),
    "chunk": (first_in_chunk, end_seen),
    "whole_chunk": (first_in_chunk, end_of_chunk),
    "near": (first_near, end_near),
}


class CellLayout(NamedTuple):
    """Layout of the keys, or values, of a layer: the five int64 of ``kv_cache.Cells.layout``."""

    cache: int
    head_bytes: int
    tile_bytes: int
    dim: int
    unit: int


class Shape(NamedTuple):
    """Properties shared by all work items of a kernel."""

    n_head: int
    group: int  # query heads per key head
    k_dim: int
    v_dim: int
    k_width: int  # padded columns of queries, and of values
    v_width: int
    window: int  # attention window in positions; 0: unlimited
    part_size: int  # positions
    at_once: int  # rows in registers


class Sequences(NamedTuple):
    """Addresses of the sequences of a step, as arguments of ``attention.attend``."""

    n_seqs: int
    starts: int
    positions: int
    lengths: int  # 0: every sequence attends to all positions after this step
    table: int


class Bias(NamedTuple):
    """Additive biases of scores: rows of ``table``, one per query head, ``stride`` long; own position at ``zero``."""

    table: int
    stride: int
    zero: int


class WorkItem(NamedTuple):
    """``n`` rows from ``row0`` of a sequence and a key head, with the positions from ``first`` up to ``end``."""

    token: int  # index of the sequence's first token in the batch
    past: int  # position of that token
    length: int  # positions with keys
    blocks: int  # address of the sequence's block table
    head: int  # key head
    row0: int
    n: int
    number: int  # index of the positions' part, from the first attended one
    first: int
    end: int


@inline
def layout_at(place):
    return CellLayout(get_i64(place), get_i64(place + 8), get_i64(place + 16), get_i64(place + 24), get_i64(place + 32))


@inline
def rows_of_items(n_rows, n_others, n_threads):
    """Return the rows of an item: fewer if there are few items, ``n_others`` for each range of rows, for the threads.

    Each item reads all keys and values: the fewer there are, the less is read.
    """
    return ROWS if (n_rows + ROWS - 1) // ROWS * n_others >= MANY_ITEMS * n_threads else ROWS // 2


@functools.cache
def part_finder(mask: str) -> Any:
    """Return a function that converts an item's number to the item.

    ``n_rows`` is that of an item. The order is key heads, then parts of the positions, then rows from the last, since
    these take longest.
    """
    first_of, end_of = SEEN[mask]

    @inline
    def part_of(shape, number, n_parts, n_rows, token, past, n_tokens, length, blocks):
        n_head_kv = shape.n_head // shape.group
        head, rest = number % n_head_kv, number // n_head_kv
        part = first_of(past, shape.window, length) // shape.part_size + rest % n_parts
        count = n_tokens * shape.group
        row0 = ((count + n_rows - 1) // n_rows - 1 - rest // n_parts) * n_rows
        n = count - row0 if count - row0 < n_rows else n_rows
        start, stop = part * shape.part_size, (part + 1) * shape.part_size
        first = first_of(past + row0 // shape.group, shape.window, length)
        end = end_of(past + (row0 + n - 1) // shape.group, shape.window, length)
        first, end = first if first > start else start, end if end < stop else stop
        return WorkItem(token, past, length, blocks, head, row0, n, rest % n_parts, first, end)

    return part_of


def part_counter(mask: str) -> Any:
    """Return a function that counts the parts that a sequence's positions are divided into; ``mask``: a key of SEEN."""
    first_of, end_of = SEEN[mask]

    @inline
    def count_parts(shape, past, n_tokens, length):
        last = (end_of(past + n_tokens - 1, shape.window, length) - 1) // shape.part_size
        return last + 1 - first_of(past, shape.window, length) // shape.part_size

    return count_parts


@functools.cache
def item_finder(mask: str) -> Any:
    """Return a function that takes the next item of the ``Sequences`` of a step.

    ``before`` is the number of items of the sequences before ``seq``. If none is left, the item has no rows.
    """
    count_parts, part_of = part_counter(mask), part_finder(mask)

    @inline
    def find_item(shape, ticket, seq, before, sequences, n_threads):
        """Return the item's sequence, the items before that, and the item."""
        starts, token_positions, lengths = get_i64(sequences.starts), get_i64(sequences.positions), sequences.lengths
        number = next_part(ticket)
        while seq < get_i64(sequences.n_seqs):
            token, next_token = np.int64(get_i32(starts + 4 * seq)), np.int64(get_i32(starts + 4 * seq + 4))
            past = np.int64(get_i32(token_positions + 4 * token))  # a sequence's tokens have consecutive positions
            n_tokens = next_token - token
            length = past + n_tokens if lengths == 0 else np.int64(get_i32(get_i64(lengths) + 4 * seq))
            n_parts = count_parts(shape, past, n_tokens, length)
            n_others = n_parts * (shape.n_head // shape.group)
            n_rows = rows_of_items(n_tokens * shape.group, n_others, n_threads)
            n_all = (n_tokens * shape.group + n_rows - 1) // n_rows * n_others
            if number - before < n_all:
                blocks = get_i64(sequences.table) + 4 * seq * get_i64(sequences.table + 8)
                item = part_of(shape, number - before, n_parts, n_rows, token, past, n_tokens, length, blocks)
                return seq, before, item
            before += n_all
            seq += 1
        none: Any = np.int64(0)
        return seq, before, WorkItem(none, none, none, none, none, none, none, none, none, none)

    return find_item
