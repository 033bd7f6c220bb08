"""Products with Hadamard matrices, by a fast transform of constant geometry (Pease 1968, doi:10.1145/321450.321457)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import part_start, shuffle
from pumice_cpu.simd import get_i64, load_f32, registers_f32, splat_f32, store_f32


def transform(size: str) -> Any:
    """Return a kernel that transforms rows of ``size`` values: a power of two, at least 32.

    A stage adds and subtracts both halves of a row and interleaves the results; after ``log2(size)`` stages all values
    are in order again.
    """
    n_vectors = int(size) // 16
    half, n_stages, factor = n_vectors // 2, int(size).bit_length() - 1, np.float32(int(size) ** -0.5)

    def kernel(thread, n_threads, count, x, y, n_rows):
        values, sums = registers_f32(n_vectors), registers_f32(n_vectors)
        rows = get_i64(count) * n_rows
        for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
            place = 64 * n_vectors * row
            for i in range(n_vectors):
                values[i] = load_f32(x + place + 64 * i) * splat_f32(factor)
            for _ in range(n_stages):
                for i in range(half):
                    sums[i] = values[i] + values[i + half]
                    sums[i + half] = values[i] - values[i + half]
                shuffle(sums, values, half)
            for i in range(n_vectors):
                store_f32(y + place + 64 * i, values[i])

    return kernel
