"""Selection of the positions that a token attends to by the scores of an indexer: ``choose_positions``."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import layout_at
from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.simd import fma, get_f32, get_i32, get_i64, load_f32, maximum, put_f32, splat_f32, store_f32

HIGHEST = np.float32(3e38)  # larger than any score
HIDDEN = np.float32(-1e30)  # added to the score of a masked position


@inline
def rank(place):
    """Return a float as an integer with the same order."""
    bits = get_i32(place)
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@inline
def lowest_chosen(row, n, n_chosen):
    """Return the rank of the ``n_chosen``-th largest of ``n`` floats by bisection."""
    low, high = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)
    while low < high:
        middle = (low + high + 1) >> 1
        count = 0
        for i in range(n):
            if rank(row + 4 * i) >= middle:
                count += 1
        if count >= n_chosen:
            low = middle
        else:
            high = middle - 1
    return low


@inline
def hide_others(row, n, pool, n_chosen):
    """Replace ``n`` scores by a mask, in place; the last score of each whole pool counts for the pool."""
    n_pools = n // pool
    for i in range(n_pools):
        put_f32(row + 4 * i, get_f32(row + 4 * (pool * i + pool - 1)))
    lowest = lowest_chosen(row, n_pools, n_chosen)
    for i in range(n_pools * pool, n):
        put_f32(row + 4 * i, np.float32(0))
    for i in range(n_pools):
        one = n_pools - 1 - i  # from the last, so unread scores are not overwritten
        value = np.float32(0) if rank(row + 4 * one) >= lowest else HIDDEN
        for j in range(pool):
            put_f32(row + 4 * (pool * one + j), value)


@inline
def hide_other_blocks(row, n, pool, n_chosen, n_local):
    """Like ``hide_others``, for pools ranked by the highest of ``n`` scores; always keep the latest ``n_local``."""
    n_pools = (n + pool - 1) // pool
    for i in range(n_pools):
        best, end = get_f32(row + 4 * pool * i), pool * i + pool if pool * i + pool < n else n
        for j in range(pool * i + 1, end):
            value = get_f32(row + 4 * j)
            best = value if value > best else best
        put_f32(row + 4 * i, HIGHEST if i + n_local >= n_pools else best)
    lowest = lowest_chosen(row, n_pools, n_chosen)
    for i in range(n_pools):
        one = n_pools - 1 - i
        value = np.float32(0) if rank(row + 4 * one) >= lowest else HIDDEN
        for j in range(pool * one, pool * one + pool if pool * one + pool < n else n):
            put_f32(row + 4 * j, value)


def choose(kv_type: str, cells: str) -> Any:
    """Return a kernel that computes each token's row of the mask, ``width`` values long.

    Arguments in the step block are as for ``attention.attend``; ``scratch`` holds a decoded tile of keys per thread.
    """
    read_tile = tile_reader(kv_type, cells)

    def kernel(
        thread, n_threads, n_seqs, seq_starts, positions, table, block_size,
        q, weights, y, keys, n_head, width, n_chosen, pool, n_local, scratch,
    ):  # fmt: skip
        layout, zero = layout_at(keys), splat_f32(np.float32(0))
        starts, token_positions = get_i64(seq_starts), get_i64(positions)
        dim, tile = layout.dim, scratch + 64 * (layout.dim + 16) * thread
        for seq in range(get_i64(n_seqs)):
            blocks = get_i64(table) + 4 * seq * get_i64(table + 8)
            for token in range(get_i32(starts + 4 * seq) + thread, get_i32(starts + 4 * seq + 4), n_threads):
                n = np.int64(get_i32(token_positions + 4 * token)) + 1
                n_pools = (n + pool - 1) // pool if n_local > 0 else n // pool
                row = y + 4 * width * token
                for first in range(0, n, 16):
                    total = zero
                    if n_pools > n_chosen:
                        read_tile(
                            layout.cache, blocks, first, np.int64(0), n, block_size, layout.tile_bytes, dim,
                            layout.unit, tile,
                        )  # fmt: skip
                        for head in range(n_head):
                            product, query = zero, q + 4 * dim * (token * n_head + head)
                            for column in range(dim):
                                value = splat_f32(get_f32(query + 4 * column))
                                product = fma(value, load_f32(tile + 64 * column), product)
                            weight = splat_f32(get_f32(weights + 4 * (token * n_head + head)))
                            total = fma(weight, maximum(product, zero), total)
                    store_f32(row + 4 * first, total)
                if n_pools > n_chosen and n_local > 0:
                    hide_other_blocks(row, n, pool, n_chosen, n_local)
                elif n_pools > n_chosen:
                    hide_others(row, n, pool, n_chosen)

    return kernel
