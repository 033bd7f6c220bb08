"""Convolutions over a grid of rows, from the operations of graphs: each tap gathers rows, a product joins them."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, ModelError, Tensor, Weight, fixed
from pumice_architectures.vision.vit import Grid

Inputs = dict[str, NDArray[np.float32] | NDArray[np.int32]]


def tap_inputs(name: str, grid: Grid, side: int, stride: int = 1, pad: int | None = None) -> Inputs:
    """Return the inputs of a convolution over a grid: ids of the rows of each tap, and 0 for those outside of it.

    Args:
        name: of the inputs.
        grid: rows and columns of what is convolved.
        side: of the kernel.
        stride: distance of the results.
        pad: empty rows before the grid; half of the kernel unless given. As many as needed follow it.
    """
    pad = side // 2 if pad is None else pad
    out = tuple(-(-n // stride) for n in grid)
    y, x = (axis.reshape(-1) * stride - pad for axis in np.indices(out))
    inputs: Inputs = {}
    for i in range(side**2):
        row, column = y + i // side, x + i % side
        inside = (row >= 0) & (row < grid[0]) & (column >= 0) & (column < grid[1])
        ids = np.where(inside, row * grid[1] + column, 0)
        inputs[f"{name}.{i}"] = ids.astype(np.int32)
        inputs[f"{name}.{i}.inside"] = inside.astype(np.float32)[:, None]
    return inputs


def _taps(g: GraphBuilder, x: Tensor, name: str, side: int, size: str) -> list[Tensor]:
    """Return for each tap of a kernel the rows that it sees, of the inputs ``name``; ``size``: their number."""
    return [
        g.get_rows(x, g.input(f"{name}.{i}", (size,), "i32")) * g.input(f"{name}.{i}.inside", (size, 1))
        for i in range(side**2)
    ]


def convolved(g: GraphBuilder, x: Tensor, name: str, weight: str, size: str) -> Tensor:
    """Return a convolution of rows ``x [t, n]`` by the kernel ``weight [n_out, n, side, side]``.

    ``name``: of the inputs; ``size``: the number of results.
    """
    stored = g.weight(f"{weight}.weight")
    n_out, n, side, _ = _kernel_shape(fixed(stored.shape), f"{weight}.weight")
    if n != x.shape[-1]:
        raise ModelError(f"tensor {weight}.weight has shape {list(stored.shape)}, for rows of {x.shape[-1]} values")
    flat = g.derived(
        f"{weight}.taps", (n_out, side**2 * n), lambda w: w.transpose(0, 2, 3, 1).reshape(len(w), -1), stored
    )
    rows = functools.reduce(g.concat, _taps(g, x, name, side, size)) if side > 1 else x
    return g.linear(rows, flat, g.find_weight(f"{weight}.bias", (n_out,)))


def summed(g: GraphBuilder, x: Tensor, name: str, weight: str, size: str) -> Tensor:
    """Return what ``convolved`` does without its bias, as a sum of products: rows too many to join their taps."""
    stored = g.weight(f"{weight}.weight")
    n_out, n, side, _ = _kernel_shape(fixed(stored.shape), f"{weight}.weight")
    products = [
        g.linear(tap, g.derived(f"{weight}.{i}", (n_out, n), functools.partial(_matrix, i), stored))
        for i, tap in enumerate(_taps(g, x, name, side, size))
    ]
    return functools.reduce(Tensor.__add__, products)


def row(g: GraphBuilder, name: str, n: int) -> Weight:
    """Return the weight ``name [n]``, which may be stored with dimensions of 1."""
    return g.derived(f"{name}.row", (n,), lambda stored: stored.reshape(-1), g.weight(name))


def depthwise(g: GraphBuilder, x: Tensor, name: str, weight: str, size: str) -> Tensor:
    """Return a convolution of each of the values of rows ``x [t, n]`` alone, by ``weight [n, 1, side, side]``.

    Old files lack the dimension of 1.
    """
    stored = g.weight(f"{weight}.weight")
    shape = fixed(stored.shape)
    n, _, side, _ = _kernel_shape((shape[0], 1, *shape[1:]) if len(shape) == 3 else shape, f"{weight}.weight")
    if n != x.shape[-1]:
        raise ModelError(f"tensor {weight}.weight has shape {list(stored.shape)}, for rows of {x.shape[-1]} values")
    parts = [
        tap * g.derived(f"{weight}.{i}", (n,), functools.partial(_tap, i), stored)
        for i, tap in enumerate(_taps(g, x, name, side, size))
    ]
    y = functools.reduce(Tensor.__add__, parts)
    return y + row(g, f"{weight}.bias", n) if g.find_weight(f"{weight}.bias") else y


def _tap(i: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    return kernel.reshape(len(kernel), -1)[:, i]


def _matrix(i: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(kernel.reshape(*kernel.shape[:2], -1)[:, :, i])


def _kernel_shape(shape: tuple[int, ...], name: str) -> tuple[int, int, int, int]:
    if len(shape) != 4 or shape[2] != shape[3] or not 0 < shape[2] <= 16:
        raise ModelError(f"tensor {name} has shape {list(shape)}, expected that of a square kernel")
    return shape[0], shape[1], shape[2], shape[3]


def mean_of_rows(g: GraphBuilder, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return for each row of the step the mean of all rows ``x [t, n]``: attention by the scores ``mask``."""
    n = int(x.shape[-1])
    heads = x.reshape(x.shape[0], n // math.gcd(n, 64), math.gcd(n, 64))
    zero = heads * 0.0
    y = g.attention(zero, zero, heads, scale=1.0, causal=False, cache=False, mask=mask)
    return y.reshape(x.shape[0], n)
