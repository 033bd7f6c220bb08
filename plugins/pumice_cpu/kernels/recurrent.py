"""Operations with a state for each sequence, over sixteen channels at a time.

States are ``[slots, rows, channels]``: sixteen channels of a row are one vector. A sequence at position 0
starts from zeros.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import exp, fma, get_f32, get_i32, get_i64, splat_f32


@inline
def begin(positions, first, state, n_rows, width, left):
    """Forget the sequence before, if this one's first token has position 0."""
    if get_i32(positions + 4 * first) == 0:
        for row in range(n_rows):
            store_up_to(state + 4 * width * row, splat_f32(np.float32(0)), left)


def conv1d(
    thread, n_threads, n_seqs, seq_starts, slots, positions, x, weight, bias, state, y, n_taps, width
):  # fmt: skip
    """``weight [n_taps, width]``; the state is the last ``n_taps - 1`` inputs."""
    starts, places, n_kept = get_i64(seq_starts), get_i64(slots), n_taps - 1
    blocks = (width + 15) // 16
    parts = get_i64(n_seqs) * blocks
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        seq, at, left = part // blocks, 64 * (part % blocks), width - 16 * (part % blocks)
        first, end = get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)
        kept = state + 4 * width * n_kept * get_i32(places + 4 * seq) + at
        begin(get_i64(positions), first, kept, n_kept, width, left)
        for t in range(first, end):
            total = load_up_to(bias + at, left)
            for tap in range(n_taps):
                row = t + tap - n_kept
                source = x + 4 * width * row + at if row >= first else kept + 4 * width * (n_kept + row - first)
                total = fma(load_up_to(weight + 4 * width * tap + at, left), load_up_to(source, left), total)
            store_up_to(y + 4 * width * t + at, total, left)
        for i in range(n_kept):
            row = end - n_kept + i
            source = x + 4 * width * row + at if row >= first else kept + 4 * width * (n_kept + row - first)
            store_up_to(kept + 4 * width * i, load_up_to(source, left), left)


def ssm_scan(
    thread, n_threads, n_seqs, seq_starts, slots, positions, x, dt, a, b, c, d, state, y, n_state, width
):  # fmt: skip
    """``x, dt, y [t, width]``; ``a [n_state, width]``; ``b, c [t, n_state]``; ``d [width]``."""
    starts, places = get_i64(seq_starts), get_i64(slots)
    blocks = (width + 15) // 16
    parts = get_i64(n_seqs) * blocks
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        seq, at, left = part // blocks, 64 * (part % blocks), width - 16 * (part % blocks)
        first, end = get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)
        h = state + 4 * width * n_state * get_i32(places + 4 * seq) + at
        begin(get_i64(positions), first, h, n_state, width, left)
        for t in range(first, end):
            step, value = load_up_to(dt + 4 * width * t + at, left), load_up_to(x + 4 * width * t + at, left)
            added = step * value
            total = value * load_up_to(d + at, left)
            for i in range(n_state):
                place = h + 4 * width * i
                decay = exp(step * load_up_to(a + 4 * width * i + at, left))
                new = fma(added, splat_f32(get_f32(b + 4 * (n_state * t + i))), load_up_to(place, left) * decay)
                store_up_to(place, new, left)
                total = fma(new, splat_f32(get_f32(c + 4 * (n_state * t + i))), total)
            store_up_to(y + 4 * width * t + at, total, left)
