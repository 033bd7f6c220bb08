"""Small pieces that kernels share; they are compiled into each."""

from __future__ import annotations

from numba import njit

from pumice_cpu.kernels.step import atomic_add

inline = njit(inline="always")


@inline
def part_start(count, thread, n_threads):
    """Where a thread's share of ``count`` equal parts begins; the next thread's start is its end."""
    return count * thread // n_threads


@inline
def next_part(ticket):
    """The next part of an operation that no thread has taken yet, counted from 0."""
    return atomic_add(ticket, 1)
