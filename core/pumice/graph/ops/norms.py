"""Norms, rotations and positions."""

from __future__ import annotations

from pumice.graph.operation import Result, Tracer, check_broadcast, composite, need, operation
from pumice.graph.ops.arrange import sum_
from pumice.graph.ops.elementwise import div, scale
from pumice.graph.tensor import Tensor, Weight


@operation
def rms_norm(x: Tensor, weight: Weight | None, eps: float) -> Result:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    check_broadcast(x, weight)
    return Result(x.shape)


@operation
def layer_norm(x: Tensor, weight: Weight | None, bias: Weight | None, eps: float) -> Result:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axis (Ba et al. 2016, arXiv:1607.06450)."""
    check_broadcast(x, weight, bias)
    return Result(x.shape)


@operation
def softmax(x: Tensor) -> Result:
    """Over the last axis."""
    return Result(x.shape)


def _balance(g: Tracer, x: Tensor, n_iterations: int, eps: float) -> Tensor:
    x = scale(g, softmax(g, x), 1.0, eps)
    for axis in (-2, *(-1, -2) * (n_iterations - 1)):
        x = div(g, x, scale(g, sum_(g, x, axis=axis, keepdims=True), 1.0, eps))
    return x


@composite("sinkhorn", _balance)
def sinkhorn(x: Tensor, n_iterations: int, eps: float) -> Result:
    """Matrices ``[..., n, n]`` of which rows and columns add up to nearly 1 (Sinkhorn and Knopp 1967).

    The softmax of each row plus ``eps``; then columns, and ``n_iterations - 1`` times rows and columns, are divided by
    their sums plus ``eps``.
    """
    need(len(x.shape) > 2 and x.shape[-1] == x.shape[-2], f"sinkhorn: {x} holds no square matrices")
    need(n_iterations > 0, f"sinkhorn: {n_iterations} iterations")
    return Result(x.shape)


@operation
def hadamard(x: Tensor, size: int) -> Result:
    """Multiply each ``size`` neighbouring values of the last axis by the Hadamard matrix over ``sqrt(size)``.

    ``size`` is a power of two. The matrix (Sylvester 1867) has ``(-1)^popcount(i & j)`` in row ``i`` and column ``j``.
    Over ``sqrt(size)`` it is orthogonal and its own inverse.
    """
    need(size > 1 and size & (size - 1) == 0, f"hadamard: size {size} is no power of two")
    need(int(x.shape[-1]) % size == 0, f"hadamard: rows of {x} are no whole multiples of {size} values")
    return Result(x.shape)


@operation
def rope(
    x: Tensor,
    positions: Tensor,
    *,
    freqs: tuple[float, ...],
    neox: bool,
    magnitude: float = 1.0,
    axes: tuple[int, ...] = (),
) -> Result:
    """Rotary positions on the first ``n_rot = 2 len(freqs)`` values of each head of ``x [t, h, d]``.

    Pair ``i`` turns by ``position * freqs[i]`` radians and grows by ``magnitude``; it is ``(2i, 2i + 1)``, or
    ``(i, i + n_rot/2)`` with ``neox`` (Su et al. 2021, arXiv:2104.09864). ``positions`` are int32 ``[t]``; or they are
    ``[t, k]``, and pair ``i`` turns by the one in column ``axes[i]`` (M-RoPE, Wang et al. 2024, arXiv:2409.12191).
    """
    n_rot = 2 * len(freqs)
    need(0 < n_rot <= int(x.shape[-1]), f"rope: {n_rot} values of a head are to turn, {x} has {x.shape[-1]}")
    if len(positions.shape) == 2 or axes:
        fits = len(positions.shape) == 2 and len(axes) == len(freqs) and 0 <= min(axes) <= max(axes)
        need(fits and max(axes) < int(positions.shape[1]), f"rope: axes {axes} do not fit {positions}")
    return Result(x.shape)


@operation
def position_scale(positions: Tensor, length: int, beta: float, offset: int = 0) -> Result:
    """``1 + beta * ln(1 + floor((position + offset) / length))`` for int32 ``positions [t]``: float32 ``[t]``.

    Multiplies queries, to keep attention sharp over long contexts (Nakanishi 2025, arXiv:2501.19399).
    """
    need(length > 0, f"position_scale: length {length} must be at least 1")
    return Result(positions.shape)
