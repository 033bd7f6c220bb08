"""Stateless operations on float32 arrays; ``pumice.graph.ops`` has the sources of the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import ELEMENTWISE, Batch, Formula

F32Array = NDArray[np.float32]
I32Array = NDArray[np.int32]

TILE = 4096  # rows of a weight per product, which bounds the memory of decoded rows

# --- rows and matrices


def tap(x: F32Array, site: str, state: None, batch: Batch) -> F32Array:
    """Return ``x`` after the functions of the batch that see its rows."""
    y = x.copy()
    for first, end, taps in batch.taps:
        if site in taps.sites:
            y[first:end] = taps.apply(site, x[first:end], batch.positions[first:end])
    return y


def embedding(weight: F32Array, ids: I32Array) -> F32Array:
    return weight[ids]


def get_rows(x: F32Array, ids: I32Array) -> F32Array:
    return x[ids]


def linear(x: F32Array, weight: F32Array, bias: F32Array | None) -> F32Array:
    tiles = [x @ weight[row : row + TILE].T for row in range(0, weight.shape[0], TILE)]
    y = np.concatenate(tiles, axis=-1) if len(tiles) > 1 else tiles[0]
    return y if bias is None else y + bias


def batched_linear(x: F32Array, weight: F32Array) -> F32Array:
    return np.einsum("thk,hmk->thm", x, np.asarray(weight), optimize=True)


def mul_mat_id(x: F32Array, weight: F32Array, ids: I32Array) -> F32Array:
    if x.ndim == 2:  # every expert of a token reads the same input
        x = np.broadcast_to(x[:, None, :], (*ids.shape, x.shape[-1]))
    y = np.empty((*ids.shape, weight.shape[1]), np.float32)
    for expert in np.unique(ids):
        chosen = ids == expert
        y[chosen] = x[chosen] @ weight[expert].T
    return y


# --- norms and positions


def rms_norm(x: F32Array, weight: F32Array | None, eps: float) -> F32Array:
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))
    return y if weight is None else y * weight


def layer_norm(x: F32Array, weight: F32Array | None, bias: F32Array | None, eps: float) -> F32Array:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + np.float32(eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def hadamard(x: F32Array, size: int) -> F32Array:
    y = x.reshape(-1, size)
    half = 1
    while half < size:
        pairs = y.reshape(-1, 2, half)
        y = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        half *= 2
    return (y * np.float32(size**-0.5)).reshape(x.shape)


def rope(
    x: F32Array,
    positions: I32Array,
    freqs: tuple[float, ...],
    neox: bool,
    magnitude: float,
    axes: tuple[int, ...],
) -> F32Array:
    angles = (positions[:, list(axes)] if axes else positions[:, None]) * np.array(freqs)  # [t, n_rot / 2], float64
    cos = (np.cos(angles) * magnitude).astype(np.float32)[:, None, :]
    sin = (np.sin(angles) * magnitude).astype(np.float32)[:, None, :]
    half, n_rot = len(freqs), 2 * len(freqs)
    first, second = (slice(0, half), slice(half, n_rot)) if neox else (slice(0, n_rot, 2), slice(1, n_rot, 2))
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def position_scale(positions: I32Array, length: int, beta: float, offset: int) -> F32Array:
    return (1 + beta * np.log1p((positions + offset) // length)).astype(np.float32)


# --- element by element


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(x, np.float32(0)),
}


def elementwise(formula: Formula) -> Callable[..., F32Array]:
    """Return a function that computes a formula from its operands and attributes by name."""

    def compute(**values: Any) -> F32Array:
        with np.errstate(all="ignore"):  # infinities and NaN follow from the formula
            names: dict[str, Any] = {name: np.asarray(value, np.float32) for name, value in values.items()}
            result: F32Array = formula.fold(names, lambda value: np.asarray(value, np.float32), FUNCTIONS)
            return result

    return compute


def softmax(x: F32Array) -> F32Array:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


# --- choosing and arranging


def top_k(x: F32Array, k: int) -> I32Array:
    return np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)


def quotient(x: I32Array, size: int) -> I32Array:
    return x // np.int32(size)


def remainder(x: I32Array, size: int) -> I32Array:
    return x % np.int32(size)


def ngram_rows(
    tokens: F32Array, multipliers: tuple[int, ...], sizes: tuple[int, ...], offsets: tuple[int, ...]
) -> I32Array:
    products = tokens.astype(np.uint64) * np.array(multipliers, np.uint64)
    ngrams = np.bitwise_xor.accumulate(products, axis=-1)[:, 1:]
    of_heads = np.repeat(ngrams, len(sizes) // ngrams.shape[-1], axis=-1)
    rows = of_heads % np.array(sizes, np.uint64) + np.array(offsets, np.uint64)
    return rows.astype(np.int32)


def gather(x: F32Array, ids: I32Array) -> F32Array:
    return np.take_along_axis(x, ids, axis=-1)


def sum_(x: F32Array, axis: int, keepdims: bool) -> F32Array:
    return np.sum(x, axis=axis, keepdims=keepdims)


def slice_(x: F32Array, start: int, stop: int) -> F32Array:
    return x[..., start:stop]


def concat(x: F32Array, y: F32Array) -> F32Array:
    y = np.broadcast_to(y, (*x.shape[:-1], y.shape[-1]))
    return np.concatenate([x, y], axis=-1)


OPS: dict[str, Any] = {
    function.__name__.rstrip("_"): function
    for function in (
        embedding,
        get_rows,
        linear,
        batched_linear,
        mul_mat_id,
        rms_norm,
        layer_norm,
        rope,
        position_scale,
        softmax,
        hadamard,
        top_k,
        quotient,
        remainder,
        ngram_rows,
        gather,
        sum_,
        slice_,
        concat,
    )
}
OPS.update(
    (name, elementwise(operation.formula))
    for name, operation in ELEMENTWISE.items()
    if operation.formula and not operation.expand
)
OPS["reshape"] = np.reshape  # listed so it is supported; programs reshape in place
