"""Operations with a state per sequence, over sixteen channels at a time.

States are ``[slots, rows, channels]``: sixteen channels of a row are one vector. A sequence at position 0 starts from
zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import exp, fma, get_f32, get_i32, get_i64, splat_f32


@inline
def begin(positions, first, state, n_rows, width, left):
    """Clear the state if the sequence's first token has position 0."""
    if get_i32(positions + 4 * first) == 0:
        for row in range(n_rows):
            store_up_to(state + 4 * width * row, splat_f32(np.float32(0)), left)


def conv1d(
    thread, n_threads, n_seqs, seq_starts, slots, positions, x, weight, bias, state, y, n_taps, width
):  # fmt: skip
    """Causal convolution; ``weight [n_taps, width]``; the state is the last ``n_taps - 1`` inputs."""
    starts, places, n_kept = get_i64(seq_starts), get_i64(slots), n_taps - 1
    blocks = (width + 15) // 16
    parts = get_i64(n_seqs) * blocks
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        seq, column, left = part // blocks, 64 * (part % blocks), width - 16 * (part % blocks)
        first, end = get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)
        kept = state + 4 * width * n_kept * get_i32(places + 4 * seq) + column
        begin(get_i64(positions), first, kept, n_kept, width, left)
        for t in range(first, end):
            total = load_up_to(bias + column, left)
            for tap in range(n_taps):
                row = t + tap - n_kept
                source = x + 4 * width * row + column if row >= first else kept + 4 * width * (n_kept + row - first)
                total = fma(load_up_to(weight + 4 * width * tap + column, left), load_up_to(source, left), total)
            store_up_to(y + 4 * width * t + column, total, left)
        for i in range(n_kept):
            row = end - n_kept + i
            source = x + 4 * width * row + column if row >= first else kept + 4 * width * (n_kept + row - first)
            store_up_to(kept + 4 * width * i, load_up_to(source, left), left)


def ssm_scan(
    thread, n_threads, n_seqs, seq_starts, slots, positions, x, dt, a, b, c, d, state, y, n_state, width
):  # fmt: skip
    """Selective scan; ``x, dt, y [t, width]``; ``a [n_state, width]``; ``b, c [t, n_state]``; ``d [width]``."""
    starts, places = get_i64(seq_starts), get_i64(slots)
    blocks = (width + 15) // 16
    parts = get_i64(n_seqs) * blocks
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        seq, column, left = part // blocks, 64 * (part % blocks), width - 16 * (part % blocks)
        first, end = get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)
        h = state + 4 * width * n_state * get_i32(places + 4 * seq) + column
        begin(get_i64(positions), first, h, n_state, width, left)
        for t in range(first, end):
            step, value = load_up_to(dt + 4 * width * t + column, left), load_up_to(x + 4 * width * t + column, left)
            added = step * value
            total = value * load_up_to(d + column, left)
            for i in range(n_state):
                place = h + 4 * width * i
                decay = exp(step * load_up_to(a + 4 * width * i + column, left))
                new = fma(added, splat_f32(get_f32(b + 4 * (n_state * t + i))), load_up_to(place, left) * decay)
                store_up_to(place, new, left)
                total = fma(new, splat_f32(get_f32(c + 4 * (n_state * t + i))), total)
            store_up_to(y + 4 * width * t + column, total, left)


def state_functions(by_channel: bool, rank_one: bool, before: bool) -> tuple[Any, Any]:
    """Return the functions that read and update a state; arguments as the letters of ``linear_attention``."""

    @inline
    def read(h, row, decay, i, width, left):
        """Return sixteen decayed columns of row i of the state, times value i of a row."""
        kept = load_up_to(h + 4 * width * i, left)
        if by_channel:
            kept = kept * splat_f32(get_f32(decay + 4 * i))
        return splat_f32(get_f32(row + 4 * i)) * kept

    @inline
    def removed(h, row, decay, n_keys, width, left):
        """Return a row times the decayed state, in two sums to shorten the dependency chain."""
        first, second = splat_f32(np.float32(0)), splat_f32(np.float32(0))
        for i in range(0, n_keys - 1, 2):
            first = first + read(h, row, decay, i, width, left)
            second = second + read(h, row, decay, i + 1, width, left)
        if n_keys % 2:
            first = first + read(h, row, decay, n_keys - 1, width, left)
        total = first + second
        return total if by_channel else total * splat_f32(get_f32(decay))

    @inline
    def update(place, left, decay, i, key, value, b, more, query):
        """Update sixteen columns of row i of the state and return their product with the query."""
        old = load_up_to(place, left)
        factor = get_f32(decay + 4 * i) if by_channel else get_f32(decay)
        new = fma(splat_f32(get_f32(key)), value, old * splat_f32(factor))
        if rank_one:
            new = fma(splat_f32(get_f32(b + 4 * i)), more, new)
        store_up_to(place, new, left)
        return splat_f32(get_f32(query)) * (old if before else new)

    return removed, update


def linear_attention(kind: str) -> Any:
    """Return a kernel with states ``[slots, heads, n_keys, width]``.

    ``kind`` is a set of letters. c: a decay per key channel; d: the delta rule; r: the rank-one update by a and b; b:
    read the state before its update. The decays of successive heads are ``decay_head`` bytes apart, those of successive
    tokens ``decay_token``.
    """
    by_channel, delta, rank_one, before = (letter in kind for letter in "cdrb")

    removed, update = state_functions(by_channel, rank_one, before)

    def kernel(
        thread, n_threads, n_seqs, seq_starts, slots, positions, q, k, v, decay, beta, a, b, state, y,
        n_heads, n_key_heads, tiled, n_keys, width, decay_token, decay_head
    ):  # fmt: skip
        starts, places = get_i64(seq_starts), get_i64(slots)
        blocks = (width + 15) // 16
        parts = get_i64(n_seqs) * n_heads * blocks
        for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
            seq, head, block = part // blocks // n_heads, part // blocks % n_heads, part % blocks
            column, left = 64 * block, width - 16 * block
            key_head = head % n_key_heads if tiled else head // (n_heads // n_key_heads)
            first, end = get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)
            h = state + 4 * width * n_keys * (n_heads * get_i32(places + 4 * seq) + head) + column
            begin(get_i64(positions), first, h, n_keys, width, left)
            for t in range(first, end):
                row, own = 4 * n_keys * (t * n_key_heads + key_head), t * n_heads + head
                factor = decay + decay_token * t + decay_head * head
                value = load_up_to(v + 4 * width * own + column, left)
                more = value
                if delta:
                    removed_value = removed(h, k + row, factor, n_keys, width, left)
                    value = splat_f32(get_f32(beta + 4 * own)) * (value - removed_value)
                if rank_one:
                    more = removed(h, a + 4 * n_keys * own, factor, n_keys, width, left)
                total, other = splat_f32(np.float32(0)), splat_f32(np.float32(0))
                ranks = b + 4 * n_keys * own
                for i in range(0, n_keys - 1, 2):
                    place, of = h + 4 * width * i, row + 4 * i
                    total = total + update(place, left, factor, i, k + of, value, ranks, more, q + of)
                    place, of = place + 4 * width, of + 4
                    other = other + update(place, left, factor, i + 1, k + of, value, ranks, more, q + of)
                if n_keys % 2:
                    i = n_keys - 1
                    place, of = h + 4 * width * i, row + 4 * i
                    total = total + update(place, left, factor, i, k + of, value, ranks, more, q + of)
                store_up_to(y + 4 * width * own + column, total + other, left)

    return kernel
