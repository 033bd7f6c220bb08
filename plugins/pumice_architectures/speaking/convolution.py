"""Causal convolutions over rows in time, at several rates, with indices of rows as inputs.

A window of rows begins with some that are only context: what they lack before the window's first row is taken as zero,
as before the first row of a sound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.nn.blocks import width

Inputs = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Rate:
    """Rows in time of which ``factor`` belong to a row of a step; ``most``: the maximum in a step."""

    factor: int
    most: int

    def size(self, g: GraphBuilder) -> str:
        return N_TOKENS if self.factor == 1 else g.size(f"n_rows_{self.factor}", self.most)

    def shifts(self, n: int, distances: Sequence[int]) -> Inputs:
        """Return the inputs of ``earlier`` for ``n`` rows of a step."""
        rows, inputs = np.arange(n * self.factor, dtype=np.int32), Inputs()
        for distance in distances:
            inputs[f"x{self.factor}, {distance} earlier"] = np.maximum(rows - distance, 0).astype(np.int32)
            inputs[f"x{self.factor}, has {distance} earlier"] = (rows >= distance).astype(np.float32)[:, None]
        return inputs


def rates(n_rows: int, ratios: Sequence[int]) -> list[Rate]:
    """Return the rates of rows and of what becomes of them by each ratio."""
    factors = [math.prod(ratios[:i]) for i in range(len(ratios) + 1)]
    return [Rate(factor, n_rows * factor) for factor in factors]


def earlier(g: GraphBuilder, x: Tensor, rate: Rate, distance: int) -> Tensor:
    """Return the rows ``distance`` before those of ``x``; zero before the first one."""
    if not distance:
        return x
    name, size = f"x{rate.factor}, {distance} earlier", rate.size(g)
    inside = g.input(f"x{rate.factor}, has {distance} earlier", (size, 1))
    return g.get_rows(x, g.input(name, (size,), "i32")) * inside


def convolved(g: GraphBuilder, x: Tensor, name: str, rate: Rate, dilation: int = 1) -> Tensor:
    """Apply the causal convolution ``{name}.weight [n_out, n_in, n_taps]`` with its bias."""
    weight = g.weight(f"{name}.weight")
    n_taps = int(weight.shape[-1])
    taps = [earlier(g, x, rate, (n_taps - 1 - tap) * dilation) for tap in range(n_taps)]
    return flat_linear(g, reduce(g.concat, taps), name)


def flat_linear(g: GraphBuilder, taps: Tensor, name: str) -> Tensor:
    """Apply a convolution to rows that have the values of all taps, the earliest first: ``[n, n_taps * n_in]``."""
    weight = g.weight(f"{name}.weight")
    n_out = int(weight.shape[0])
    shape = (n_out, width(taps))
    matrix = g.derived(f"{name}, by taps", shape, lambda w: w.transpose(0, 2, 1).reshape(shape), weight)
    return g.linear(taps, matrix, g.find_weight(f"{name}.bias", (n_out,)))


def transposed(g: GraphBuilder, x: Tensor, name: str, low: Rate, high: Rate) -> Tensor:
    """Apply the transposed convolution ``{name}.weight [n_in, n_out, stride or 2 * stride]`` with its bias.

    Row ``t * stride + p`` of the result is row ``t`` times tap ``p``, and row ``t - 1`` times tap ``p + stride``.
    """
    weight, stride = g.weight(f"{name}.weight"), high.factor // low.factor
    n_in, n_out, overlaps = width(x), int(weight.shape[1]), int(weight.shape[-1]) != stride
    g.weight(f"{name}.weight", (n_in, n_out, (1 + overlaps) * stride))
    shape = (stride * n_out, (1 + overlaps) * n_in)

    def by_phase(w: NDArray[np.float32]) -> NDArray[np.float32]:
        parts = w.reshape(n_in, n_out, 1 + overlaps, stride)
        return np.ascontiguousarray(parts.transpose(3, 1, 2, 0).reshape(shape))

    both = g.concat(x, earlier(g, x, low, 1)) if overlaps else x
    phases = g.linear(both, g.derived(f"{name}, by phases", shape, by_phase, weight))
    size = high.size(g)
    rows = g.input(f"x{high.factor}, source", (size,), "i32")
    parts = [
        g.get_rows(g.slice(phases, p * n_out, (p + 1) * n_out), rows) * g.input(f"x{high.factor}, phase {p}", (size, 1))
        for p in range(stride)
    ]
    return reduce(Tensor.__add__, parts) + g.weight(f"{name}.bias", (n_out,))


def transposed_inputs(n: int, low: Rate, high: Rate) -> Inputs:
    """Return the inputs of ``transposed`` for ``n`` rows of a step, without those of ``earlier``."""
    stride, rows = high.factor // low.factor, np.arange(n * high.factor, dtype=np.int32)
    phases = {f"x{high.factor}, phase {p}": (rows % stride == p).astype(np.float32)[:, None] for p in range(stride)}
    return {f"x{high.factor}, source": rows // np.int32(stride), **phases}


def strided(g: GraphBuilder, x: Tensor, name: str, high: Rate, low: Rate) -> Tensor:
    """Apply a causal convolution of ``2 * stride`` taps to every ``stride``-th row, with its bias."""
    stride, size = high.factor // low.factor, low.size(g)
    g.weight(f"{name}.weight", (int(g.weight(f"{name}.weight").shape[0]), width(x), 2 * stride))
    taps = []
    for tap in range(2 * stride):
        rows = g.get_rows(x, g.input(f"x{low.factor}, tap {tap}", (size,), "i32"))
        taps.append(rows if tap >= stride else rows * g.input(f"x{low.factor}, has taps", (size, 1)))
    return flat_linear(g, reduce(g.concat, taps), name)


def strided_inputs(n: int, high: Rate, low: Rate) -> Inputs:
    """Return the inputs of ``strided`` for ``n`` rows of a step."""
    stride, rows = high.factor // low.factor, np.arange(n * low.factor, dtype=np.int32)
    inputs: Inputs = {
        f"x{low.factor}, tap {tap}": np.maximum(rows * stride + tap - stride, 0).astype(np.int32)
        for tap in range(2 * stride)
    }
    return {**inputs, f"x{low.factor}, has taps": (rows > 0).astype(np.float32)[:, None]}


def elu(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return ``x`` where it is positive, else ``e^x - 1`` (Clevert et al. 2015, arXiv:1511.07289)."""
    return g.relu(x) + g.scale(g.exp(g.clamp(x, float("-inf"), 0.0)), 1.0, -1.0)
