"""Stateless operations; ``pumice.graph.ops`` has the sources of the formulas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from pumice.plugin.unstable import ELEMENTWISE, Formula, Input
from pumice_mlx.fused import Fused, fuses
from pumice_mlx.step import Evaluation, StepArrays
from pumice_mlx.weights import Matrix, in_float32

# --- rows and matrices

FEW, KEPT = 32, 256  # positions of a step whose cosines are kept, by blocks of consecutive positions
MANY_PAIRS = 64  # pairs of tokens and experts from which on they are sorted by expert


def embedding(weight: Matrix, ids: mx.array) -> mx.array:
    return weight.rows(ids)


def get_rows(x: mx.array, ids: mx.array) -> mx.array:
    return x[ids]


def linear(x: mx.array, weight: Matrix, bias: mx.array | None) -> mx.array:
    y = weight.product(x)
    return y if bias is None else y + bias  # float32


def batched_linear(x: mx.array, weight: Matrix) -> mx.array:
    return weight.product(x.swapaxes(0, 1)).swapaxes(0, 1)


def mul_mat_id(x: mx.array, weight: Matrix, ids: mx.array) -> mx.array:
    x = x[:, None] if x.ndim == 2 else x  # every expert of a token reads the same input
    if ids.size < MANY_PAIRS:
        return weight.gathered(x[..., None, :], ids, in_order=False)[..., 0, :]
    rows = mx.broadcast_to(x, (*ids.shape, x.shape[-1])).reshape(ids.size, 1, -1)
    order = mx.argsort(ids.reshape(-1))
    y = weight.gathered(rows[order], ids.reshape(-1)[order], in_order=True)
    return y[mx.argsort(order)].reshape(*ids.shape, -1)


# --- norms and positions


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    if weight is None or weight.ndim == 1:
        return mx.fast.rms_norm(x, weight, eps)
    return mx.fast.rms_norm(x, None, eps) * weight


def layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    plain = all(parameter is None or parameter.ndim == 1 for parameter in (weight, bias))
    if plain:
        return mx.fast.layer_norm(x, weight, bias, eps)
    y = mx.fast.layer_norm(x, None, None, eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rope(
    x: mx.array,
    positions: mx.array,
    evaluation: Evaluation,
    freqs: tuple[float, ...],
    neox: bool,
    magnitude: float,
    axes: tuple[int, ...],
) -> mx.array:
    """Multiply each value by a cosine, and its partner by a sine; in the rest of a head they are 1 and 0."""
    n_rot, width = 2 * len(freqs), x.shape[-1]
    cos, sin = turns(positions, evaluation, width)
    type = evaluation.type  # that of attention, for which the result is
    if (evaluation.step.is_traced or fuses()) and n_rot == width:
        # The partners are the same memory in another order: a single operation.
        pairs = (2, -1) if neox else (-1, 2)
        values, cos, sin = (array.reshape(*array.shape[:-1], *pairs) for array in (x, cos, sin))
        partners = values[..., ::-1, :] if neox else values[..., ::-1]
        return TURN[type](values, partners, cos, sin).reshape(x.shape)
    half = n_rot // 2
    order = np.arange(width)
    order[:n_rot] = np.roll(order[:n_rot], half) if neox else order[:n_rot] ^ 1
    # Indexing with an ellipsis would compute the numbers of the other axes in each step.
    partner = mx.take(x, evaluation.step.array(("partner", neox, n_rot, width), lambda _: order), axis=-1)
    return TURN[type](x, partner, cos, sin)


def turns(positions: mx.array, evaluation: Evaluation, width: int) -> tuple[mx.array, mx.array]:
    """Return cosines and signed sines ``[t, 1, width]`` of a node ``rope``; those of inputs are computed in float64."""
    attrs = evaluation.node.attrs
    source = evaluation.node.inputs["positions"]
    key = (*(attrs[name] for name in ("freqs", "neox", "magnitude", "axes")), width)
    if not isinstance(source, Input):  # computed on the device
        return _turns(positions, mx, *key)
    name = source.name

    def of(step: StepArrays) -> tuple[Any, Any]:
        return step.kept((name, *key), lambda: _known_turns(step.inputs[name], key))

    cos = evaluation.step.array((name, *key, "cos"), lambda step: of(step)[0])
    return cos, evaluation.step.array((name, *key, "sin"), lambda step: of(step)[1])


def _known_turns(positions: Any, key: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return ``_turns`` by NumPy; those of single positions from blocks that are kept, since a step has few."""
    if positions.ndim > 1 or not 0 < len(positions) <= FEW:
        return _turns(positions, np, *key)
    rows = [_turns_of_block(int(position) // KEPT, key)[int(position) % KEPT] for position in positions]
    return tuple(np.stack(rows, axis=1))


@functools.lru_cache(maxsize=64)
def _turns_of_block(block: int, key: tuple[Any, ...]) -> Any:
    """Return cosines and signed sines of consecutive positions ``[p, 2, 1, width]``."""
    return np.stack(_turns(np.arange(block * KEPT, (block + 1) * KEPT), np, *key), axis=1)


TURN = {
    mx.float16: Fused(lambda x, partner, cos, sin: (x * cos + partner * sin).astype(mx.float16)),
    mx.float32: Fused(lambda x, partner, cos, sin: (x * cos + partner * sin).astype(mx.float32)),
}
"""Functions that turn values by cosines, and their partners by sines, by the type of the result."""


def _turns(
    positions: Any, of: Any, freqs: tuple[float, ...], neox: bool, magnitude: float, axes: tuple[int, ...], width: int
) -> tuple[Any, Any]:
    """Return cosines and signed sines ``[t, 1, width]`` by NumPy (float64, for large angles) or by MLX."""
    columns = positions[:, of.array(axes)] if axes else positions[:, None]
    angles = columns * of.array(freqs)
    cos, sin = of.cos(angles) * magnitude, of.sin(angles) * magnitude
    if neox:
        cos, sin = of.concatenate([cos, cos], axis=-1), of.concatenate([-sin, sin], axis=-1)
    else:
        cos, sin = (of.stack(pair, axis=-1).reshape(len(positions), -1) for pair in ((cos, cos), (-sin, sin)))
    rest = width - cos.shape[-1]
    ones, zeros = of.ones((len(positions), rest)), of.zeros((len(positions), rest))
    cos, sin = of.concatenate([cos, ones], axis=-1), of.concatenate([sin, zeros], axis=-1)
    return cos[:, None].astype(of.float32), sin[:, None].astype(of.float32)


def position_scale(positions: mx.array, length: int, beta: float, offset: int) -> mx.array:
    return 1 + beta * mx.log1p(((positions + offset) // length).astype(mx.float32))


# --- element by element


FUNCTIONS: dict[str, Callable[..., mx.array]] = {
    "add": mx.add,
    "sub": mx.subtract,
    "mul": mx.multiply,
    "div": mx.divide,
    "maximum": mx.maximum,
    "minimum": mx.minimum,
    "exp": mx.exp,
    "sqrt": mx.sqrt,
    "sin": mx.sin,
    "tanh": mx.tanh,
    "softplus": lambda x: mx.logaddexp(x, 0.0),
}


def elementwise(formula: Formula) -> Callable[..., mx.array]:
    """Return a function that computes a formula in float32 from its operands and attributes by name."""

    @Fused
    def compute(**values: Any) -> mx.array:
        names: Mapping[str, mx.array] = {
            name: in_float32(value) if isinstance(value, mx.array) else mx.array(value, mx.float32)
            for name, value in values.items()
        }
        return formula.fold(names, lambda value: mx.array(value, mx.float32), FUNCTIONS)

    return compute


def hadamard(x: mx.array, size: int) -> mx.array:
    return mx.hadamard_transform(x.reshape(*x.shape[:-1], -1, size)).reshape(x.shape)


def softmax(x: mx.array) -> mx.array:
    return mx.softmax(x, axis=-1)


# --- choosing and arranging


def top_k(x: mx.array, k: int) -> mx.array:
    return mx.argsort(-x, axis=-1)[..., :k].astype(mx.int32)


def quotient(x: mx.array, size: int) -> mx.array:
    return x // size


def remainder(x: mx.array, size: int) -> mx.array:
    return x % size


def ngram_rows(
    tokens: mx.array, multipliers: tuple[int, ...], sizes: tuple[int, ...], offsets: tuple[int, ...]
) -> mx.array:
    products = tokens.astype(mx.uint64) * _words(multipliers)
    ngrams = [products[:, 0]]
    for i in range(1, products.shape[-1]):
        ngrams.append(mx.bitwise_xor(ngrams[-1], products[:, i]))
    of_heads = mx.repeat(mx.stack(ngrams[1:], axis=-1), len(sizes) // (len(ngrams) - 1), axis=-1)
    return (of_heads % _words(sizes) + _words(offsets)).astype(mx.int32)


def _words(numbers: tuple[int, ...]) -> mx.array:
    return mx.array(np.array(numbers, np.uint64))


def gather(x: mx.array, ids: mx.array) -> mx.array:
    return mx.take_along_axis(x, ids, axis=-1)


def sum_(x: mx.array, axis: int, keepdims: bool) -> mx.array:
    return mx.sum(x, axis=axis, keepdims=keepdims)


def slice_(x: mx.array, start: int, stop: int) -> mx.array:
    return x[..., start:stop]


def concat(x: mx.array, y: mx.array) -> mx.array:
    y = mx.broadcast_to(y, (*x.shape[:-1], y.shape[-1]))
    return mx.concatenate([x, y], axis=-1)


OPS: dict[str, Callable[..., mx.array]] = {
    function.__name__.rstrip("_"): function
    for function in (
        embedding,
        get_rows,
        linear,
        batched_linear,
        mul_mat_id,
        rms_norm,
        layer_norm,
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
FORMULAS = {name: elementwise(operation.formula) for name, operation in ELEMENTWISE.items() if operation.formula}
OPS.update(FORMULAS)

#: Operands that are matrices or tables; all other weights are float32 arrays.
MATRICES = {("embedding", "weight"), ("linear", "weight"), ("batched_linear", "weight"), ("mul_mat_id", "weight")}
