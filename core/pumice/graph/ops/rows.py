"""Rows and matrices: looking up, multiplying, and pooling over a sequence."""

from __future__ import annotations

from pumice.graph.operation import Result, need, operation
from pumice.graph.tensor import Tensor, Weight


@operation
def embedding(weight: Weight, ids: Tensor) -> Result:
    """Rows of ``weight [n, d]`` named by int32 ``ids [...]``: ``[..., d]``; of ``weight [n]`` values: ``[...]``."""
    need(len(weight.shape) <= 2, f"{weight}: an embedding table has one or two dimensions")
    return Result((*ids.shape, *weight.shape[1:]))


@operation
def get_rows(x: Tensor, ids: Tensor) -> Result:
    """Rows of an activation ``x [t, ...]`` named by int32 ``ids [r]``: ``[r, ...]``."""
    return Result((*ids.shape, *x.shape[1:]), x.dtype)


@operation
def linear(x: Tensor, weight: Weight, bias: Weight | None = None) -> Result:
    """``x [..., k] @ weight [m, k].T + bias [m]``: ``[..., m]``."""
    need(len(weight.shape) == 2, f"{weight}: a linear weight has two dimensions")
    need(weight.shape[1] == x.shape[-1], f"{weight} cannot multiply {x}: rows must have {x.shape[-1]} values")
    if bias is not None:
        need(bias.shape == weight.shape[:1], f"{bias} does not fit {weight}: it must have {weight.shape[0]} values")
    return Result((*x.shape[:-1], weight.shape[0]))


@operation
def batched_linear(x: Tensor, weight: Weight) -> Result:
    """A matrix for each head: ``x [t, h, k]`` times ``weight [h, m, k]``: ``[t, h, m]``."""
    fits = len(weight.shape) == 3 and weight.shape[0] == x.shape[-2] and weight.shape[2] == x.shape[-1]
    need(fits, f"{weight} cannot multiply {x} head by head")
    return Result((*x.shape[:-1], weight.shape[1]))


@operation
def mul_mat_id(x: Tensor, weight: Weight, ids: Tensor) -> Result:
    """Experts: ``x [t, k]`` or ``[t, e, k]`` times matrices ``ids [t, e]`` of ``weight [n, m, k]``: ``[t, e, m]``."""
    fits = len(weight.shape) == 3 and weight.shape[2] == x.shape[-1]
    need(fits, f"{weight} cannot multiply {x}: experts must have rows of {x.shape[-1]} values")
    return Result((*ids.shape, weight.shape[1]))
