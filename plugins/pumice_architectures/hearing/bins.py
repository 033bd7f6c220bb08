"""The first convolution of a spectrogram, and the linear map behind the last one."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.nn import blocks

TAPS = 9  # of a kernel of 3 x 3


def first_convolved(g: GraphBuilder, name: str, size: str) -> Tensor:
    """Apply ``{name}.weight [n, 1, 3, 3]`` to the input ``frames [size, 9]``, what its taps see: ``[size, n]``."""
    kernel = g.weight(f"{name}.weight")
    flat = g.derived(f"{name}.flat", (int(kernel.shape[0]), TAPS), lambda w: w.reshape(len(w), -1), kernel)
    return g.linear(g.input("frames", (size, TAPS)), flat)


def joined_bins(g: GraphBuilder, x: Tensor, name: str, n_out: int, n_bins: int, *, by_channel: bool) -> Tensor:
    """Apply ``{name}.weight`` to all channels of a time's bins, as the sum of a product for each bin: ``[t, n_out]``.

    Args:
        g: the graph.
        x: ``[n, channels]``, a row per time and bin; the input ``bin.i`` has those of bin ``i``.
        name: of the matrix.
        n_out: rows of the matrix.
        n_bins: bins of a time.
        by_channel: the columns are all bins of a channel after another, else all channels of a bin.
    """
    n, products = blocks.width(x), []
    stored = g.weight(f"{name}.weight", (n_out, n * n_bins))
    for i in range(n_bins):
        columns = functools.partial(_columns, slice(i, None, n_bins) if by_channel else slice(i * n, (i + 1) * n))
        weight = g.derived(f"{name}.bin{i}", (n_out, n), columns, stored)
        products.append(g.linear(g.get_rows(x, g.input(f"bin.{i}", (N_TOKENS,), "i32")), weight))
    return functools.reduce(Tensor.__add__, products)


def _columns(part: slice, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    return matrix[:, part]
