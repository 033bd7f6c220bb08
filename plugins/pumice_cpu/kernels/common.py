"""Helper functions that are inlined into kernels."""

from __future__ import annotations

from pumice_cpu.kernels.step import atomic_add
from pumice_cpu.simd import interleave_high, interleave_low, load_f32, load_first_f32, store_f32, store_first_f32
from pumice_cpu.simd.inline import inline as inline


@inline
def part_start(count, thread, n_threads):
    """Return the start of a thread's share of ``count`` equal parts; the next thread's start is its end."""
    return count * thread // n_threads


@inline
def next_part(ticket):
    """Take the next part of an operation that no thread has taken yet, counted from 0."""
    return atomic_add(ticket, 1)


@inline
def load_up_to(place, left):
    """Load sixteen float32, or the ``left`` that remain, padded with zeros."""
    return load_f32(place) if left >= 16 else load_first_f32(place, left)


@inline
def store_up_to(place, value, left):
    """Store sixteen float32, or the first ``left``."""
    if left >= 16:
        store_f32(place, value)
    else:
        store_first_f32(place, value, left)


@inline
def shuffle(vectors, result, half):
    """Interleave the lanes of the first half of ``2 * half`` vectors with those of the second (a perfect shuffle)."""
    for i in range(half):
        result[2 * i] = interleave_low(vectors[i], vectors[i + half])
        result[2 * i + 1] = interleave_high(vectors[i], vectors[i + half])


@inline
def transpose(rows, spare):
    """Transpose sixteen vectors by four perfect shuffles. ``spare`` is overwritten."""
    for _ in range(2):
        shuffle(rows, spare, 8)
        shuffle(spare, rows, 8)


@inline
def transpose_eight(rows, columns):
    """Transpose eight vectors by three shuffles to two columns in each vector of ``columns``. Overwrites ``rows``."""
    shuffle(rows, columns, 4)
    shuffle(columns, rows, 4)
    shuffle(rows, columns, 4)
