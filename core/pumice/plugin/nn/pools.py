"""Keys of pools: one key for a group of consecutive tokens, valid at the last position of the pool.

At other positions it is undefined and must be masked. A pool begins at each multiple of its size.
"""

from __future__ import annotations

import numpy as np

from pumice.graph.shape import HIDDEN
from pumice.plugin import GraphBuilder, Tensor, Weight
from pumice.plugin.nn.blocks import width
from pumice.plugin.unstable import mask_width

LARGEST_SCORE = 60.0  # so that sums of exponentials stay finite


def pooled(
    g: GraphBuilder, x: Tensor, scores: Tensor, places: Weight, name: str, *, overlapping: bool = False
) -> Tensor:
    """Return the sum of ``x [t, n]`` over a pool, weighted by the softmax of ``scores [t, n]`` in each channel.

    ``places [size, n]`` are added to the scores, a row for each place in a pool. Pools that are ``overlapping`` have
    twice their size: the first half of the channels is of the pool before, and is added to the second: ``[t, n / 2]``.
    ``name`` belongs to this pool alone.
    """
    size, n = int(places.shape[0]), width(x)
    scores = scores + g.embedding(places, g.remainder(g.positions, size))
    weights = g.exp(g.clamp(scores, -LARGEST_SCORE, LARGEST_SCORE))
    taps = np.ones((n, size), np.float32)
    if overlapping:
        earlier = np.arange(n)[:, None] < n // 2
        taps = np.hstack([taps * earlier, taps * ~earlier])
    counted = g.constant(name, taps)
    total, all_weights = g.conv1d(x * weights, counted, None), g.conv1d(weights, counted, None)
    if overlapping:
        total, all_weights = (g.slice(y, 0, n // 2) + g.slice(y, n // 2, n) for y in (total, all_weights))
    return total / all_weights


def averaged(g: GraphBuilder, x: Tensor, size: int, name: str) -> Tensor:
    """Return the mean of ``x [t, n]`` over the last ``size`` tokens; ``name`` must be unique."""
    if size == 1:
        return x
    return g.conv1d(x, g.constant(name, np.full((width(x), size), 1 / size)), None)


def mask_of_ends(g: GraphBuilder, x: Tensor, size: int, n_ctx: int, name: str) -> Tensor:
    """Return a mask for attention ``[t, n]`` that keeps the ends of pools; ``n`` is that of ``choose_positions``."""
    n = mask_width(n_ctx)
    row = np.where(np.arange(n) % size == size - 1, 0, HIDDEN)
    nothing, column = g.scale(g.slice(x, 0, 1), 0.0), g.constant(name, np.zeros((n, 1)))
    return g.linear(nothing, column, g.constant(f"{name}, row", row))
