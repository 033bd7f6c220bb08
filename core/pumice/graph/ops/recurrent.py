"""Operations with a recurrent state, whose size does not depend on the length of a sequence."""

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


@operation
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    before: bool = False,
    tiled: bool = False,
) -> Result:
    """Gated linear attention: a head's past is a matrix ``S [k_dim, v_dim]`` (Yang et al. 2023, arXiv:2312.06635).

    ``S = decay * S``; with ``beta`` the delta rule (Yang et al. 2024, arXiv:2412.06464), ``v = beta * (v - k S)``;
    then ``S = S + k (x) v``, with ``a`` and ``b`` also ``+ b (x) (a S)``; ``y = q S``, or, if ``before``, of ``S`` as
    it came. So each of these is one operation: Mamba 2, lightning attention, RWKV, delta nets.

    ``q, k [t, g, k_dim]``; ``v`` and the result ``[t, h, v_dim]``; ``decay [t, h]``, ``[t, h, k_dim]`` or ``[h]``;
    ``beta [t, h]``; ``a, b [t, h, k_dim]``. Head j has key head ``j // (h / g)``, or ``j % g`` if ``tiled``.
    """
    _, n_key_heads, k_dim = k.shape
    _, n_heads, v_dim = v.shape
    need(q.shape == k.shape and k.shape[0] == v.shape[0], f"{q}, {k} and {v} are no queries, keys and values")
    need(int(n_heads) % int(n_key_heads) == 0, f"{v} has no multiple of the heads of {k}")
    shapes = (v.shape[:2], (*v.shape[:2], k_dim), v.shape[1:2])
    need(decay.shape in shapes, f"{decay} cannot be the decay of {v}")
    need(beta is None or beta.shape == v.shape[:2], f"{beta} does not fit {v}")
    need(
        (a is None) == (b is None) and all(x is None or x.shape == shapes[1] for x in (a, b)),
        f"{a}, {b} do not fit {v}",
    )
    need(beta is None or a is None, "beta and a exclude each other")
    return Result(v.shape, state=RecurrentState("linear_attention", fixed((n_heads, k_dim, v_dim))))
