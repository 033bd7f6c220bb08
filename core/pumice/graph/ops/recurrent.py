"""Operations with a recurrent state: what a sequence's past leaves behind has a fixed size."""

from __future__ import annotations

from pumice.graph.operation import Result, need, operation
from pumice.graph.shape import fixed
from pumice.graph.tensor import RecurrentState, Tensor, Weight


@operation
def conv1d(x: Tensor, weight: Weight, bias: Weight | None) -> Result:
    """Causal convolution of each channel over time: ``x [t, c]``, ``weight [c, w]``, ``bias [c]``.

    ``y[t] = bias + sum_j weight[:, j] * x[t - w + 1 + j]``; a state keeps the sequence's last ``w - 1`` inputs.
    """
    need(weight.shape[0] == x.shape[-1], f"{weight} cannot convolve {x}: it needs {x.shape[-1]} channels")
    n_channels, n_taps = fixed(weight.shape)
    return Result(x.shape, state=RecurrentState("conv", (n_taps - 1, n_channels)))


@operation
def ssm_scan(x: Tensor, dt: Tensor, a: Weight, b: Tensor, c: Tensor, d: Weight) -> Result:
    """The selective scan of Mamba (Gu and Dao 2023, arXiv:2312.00752, algorithm 2).

    ``x, dt [t, e]``; ``a [e, n]``; ``b, c [t, n]``; ``d [e]``; a state ``h [e, n]`` for each sequence:
    ``h = h * exp(dt a) + dt x b``, ``y = h . c + d x``: ``[t, e]``. ``dt`` is already positive.
    """
    need(a.shape == (x.shape[-1], b.shape[-1]), f"{a} does not fit {x} and {b}")
    return Result(x.shape, state=RecurrentState("ssm", fixed(a.shape)))
