"""The operations a graph is composed of: their operands, formulas and shape rules.

``Ops`` is the part of the builder that architectures call. Every method checks its operands, names
the tensor that does not fit, and adds one node. Backends implement the same names; the NumPy backend
is their executable definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pumice.errors import ModelError
from pumice.graph.tensor import (
    N_TOKENS,
    Dim,
    KVState,
    RecurrentState,
    Shape,
    Tensor,
    Weight,
    format_shape,
)


class Ops:
    """Operation methods. Unless said otherwise tensors are float32 and a result has the shape of ``x``."""

    def _node(self, op: str, inputs: Sequence[Tensor | None], shape: Shape, dtype: str = "f32", **attrs: Any) -> Tensor:
        raise NotImplementedError

    def _state_name(self, kind: str) -> str:
        raise NotImplementedError

    # --- rows and matrices

    def embedding(self, weight: Weight, ids: Tensor) -> Tensor:
        """Rows of ``weight [n, d]`` named by int32 ``ids [...]``: ``[..., d]``; of ``weight [n]`` values: ``[...]``."""
        _need(len(weight.shape) <= 2, f"{weight}: an embedding table has one or two dimensions")
        return self._node("embedding", (weight, ids), (*ids.shape, *weight.shape[1:]))

    def get_rows(self, x: Tensor, ids: Tensor) -> Tensor:
        """Rows of an activation ``x [t, ...]`` named by int32 ``ids [r]``: ``[r, ...]``."""
        return self._node("get_rows", (x, ids), (*ids.shape, *x.shape[1:]))

    def linear(self, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
        """``x [..., k] @ weight [m, k].T + bias [m]``: ``[..., m]``."""
        _need(len(weight.shape) == 2, f"{weight}: a linear weight has two dimensions")
        _need(
            weight.shape[1] == x.shape[-1],
            f"{weight} cannot multiply {x}: rows must have {x.shape[-1]} values",
        )
        if bias is not None:
            _need(
                bias.shape == weight.shape[:1],
                f"{bias} does not fit {weight}: it must have {weight.shape[0]} values",
            )
        return self._node("linear", (x, weight, bias), (*x.shape[:-1], weight.shape[0]))

    def batched_linear(self, x: Tensor, weight: Weight) -> Tensor:
        """A matrix for each head: ``x [t, h, k]`` times ``weight [h, m, k]``: ``[t, h, m]``."""
        _need(
            len(weight.shape) == 3 and weight.shape[0] == x.shape[-2] and weight.shape[2] == x.shape[-1],
            f"{weight} cannot multiply {x} head by head",
        )
        return self._node("batched_linear", (x, weight), (*x.shape[:-1], weight.shape[1]))

    def mul_mat_id(self, x: Tensor, weight: Weight, ids: Tensor) -> Tensor:
        """Experts: ``x [t, k]`` or ``[t, e, k]`` times matrices ``ids [t, e]`` of ``weight [n, m, k]``."""
        _need(
            len(weight.shape) == 3 and weight.shape[2] == x.shape[-1],
            f"{weight} cannot multiply {x}: experts must have rows of {x.shape[-1]} values",
        )
        return self._node("mul_mat_id", (x, weight, ids), (*ids.shape, weight.shape[1]))

    # --- norms, positions, attention

    def rms_norm(self, x: Tensor, weight: Weight | None, eps: float) -> Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)."""
        _check_broadcast(x, weight)
        return self._node("rms_norm", (x, weight), x.shape, eps=eps)

    def layer_norm(self, x: Tensor, weight: Weight | None, bias: Weight | None, eps: float) -> Tensor:
        """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axis (Ba et al. 2016, arXiv:1607.06450)."""
        _check_broadcast(x, weight)
        _check_broadcast(x, bias)
        return self._node("layer_norm", (x, weight, bias), x.shape, eps=eps)

    def rope(
        self,
        x: Tensor,
        positions: Tensor,
        factors: Weight | None = None,
        *,
        n_rot: int,
        neox: bool,
        freq_base: float,
        freq_scale: float = 1.0,
        ext_factor: float = 0.0,
        attn_factor: float = 1.0,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        n_ctx_orig: int = 0,
    ) -> Tensor:
        """Rotary positions on the first ``n_rot`` values of each head of ``x [t, h, d]``.

        Pair ``i`` turns by ``position * freq_scale * freq_base^(-2i/n_rot) / factors[i]``; a pair is
        ``(2i, 2i+1)``, or ``(i, i + n_rot/2)`` with ``neox`` (Su et al. 2021, arXiv:2104.09864).
        ``ext_factor`` above 0 blends towards unscaled angles between ``beta_fast`` and ``beta_slow``
        rotations over ``n_ctx_orig`` positions, and scales by ``1 + 0.1 ln(1 / freq_scale)``
        (YaRN, Peng et al. 2023, arXiv:2309.00071). ``attn_factor`` multiplies the rotated values.
        """
        _need(
            n_rot % 2 == 0 and 0 < n_rot <= int(x.shape[-1]),
            f"rope: n_rot {n_rot} must be even, at most {x.shape[-1]}",
        )
        if factors is not None:
            _need(factors.shape == (n_rot // 2,), f"{factors}: rope needs {n_rot // 2} factors")
        return self._node(
            "rope",
            (x, positions, factors),
            x.shape,
            n_rot=n_rot,
            neox=neox,
            freq_base=freq_base,
            freq_scale=freq_scale,
            ext_factor=ext_factor,
            attn_factor=attn_factor,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            n_ctx_orig=n_ctx_orig,
        )

    def position_scale(self, positions: Tensor, length: int, beta: float) -> Tensor:
        """``1 + beta * ln(1 + floor(position / length))`` for int32 ``positions [t]``: float32 ``[t]``.

        Multiplies queries, to keep attention sharp over long contexts (Nakanishi 2025, arXiv:2501.19399).
        """
        _need(length > 0, f"position_scale: length {length} must be at least 1")
        return self._node("position_scale", (positions,), positions.shape, length=length, beta=beta)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor | None,
        *,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Weight | None = None,
        v_dim: int = 0,
    ) -> Tensor:
        """Append ``k [t, g, d]`` and ``v [t, g, e]`` to the cache, then attend with ``q [t, h, d]``: ``[t, h, e]``.

        A query sees its own position and earlier ones, the latest ``window`` of them if it is not 0. Query
        head ``i`` reads key head ``i // (h / g)``. A score is ``scale * q . k``, then
        ``softcap * tanh(score / softcap)`` if ``softcap`` is not 0; ``sinks [h]`` adds one more logit to each
        softmax that attends to nothing. With ``v`` None the values are the first ``v_dim`` values of the keys.
        """
        n_head, n_head_kv = int(q.shape[-2]), int(k.shape[-2])
        _need(q.shape[-1] == k.shape[-1], f"attention: queries {q} and keys {k} must have heads of one size")
        _need(n_head % n_head_kv == 0, f"attention: {n_head} query heads cannot share {n_head_kv} key heads")
        if v is not None:
            _need(v.shape[-2] == n_head_kv, f"attention: values {v} need {n_head_kv} heads")
            v_dim = int(v.shape[-1])
        if sinks is not None:
            _need(sinks.shape == (n_head,), f"{sinks}: attention needs {n_head} sinks")
        state = KVState(
            self._state_name("kv"),
            (),
            n_head_kv=n_head_kv,
            k_dim=int(k.shape[-1]),
            v_dim=v_dim if v is not None else 0,
            window=window,
        )
        return self._node(
            "attention",
            (q, k, v, state, sinks),
            (N_TOKENS, n_head, v_dim),
            scale=scale,
            window=window,
            softcap=softcap,
            v_dim=v_dim,
        )

    # --- element by element

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``; ``y`` broadcasts over leading axes and over axes where it has 1."""
        _check_broadcast(x, y)
        return self._node("add", (x, y), x.shape)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``; ``y`` broadcasts as in ``add``."""
        _check_broadcast(x, y)
        return self._node("mul", (x, y), x.shape)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        """``x / y``; ``y`` broadcasts as in ``add``."""
        _check_broadcast(x, y)
        return self._node("div", (x, y), x.shape)

    def scale(self, x: Tensor, factor: float, bias: float = 0.0) -> Tensor:
        """``x * factor + bias`` with constants."""
        return self._node("scale", (x,), x.shape, factor=factor, bias=bias)

    def clamp(self, x: Tensor, low: float, high: float) -> Tensor:
        return self._node("clamp", (x,), x.shape, low=low, high=high)

    def silu(self, x: Tensor) -> Tensor:
        """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118)."""
        return self._node("silu", (x,), x.shape)

    def gelu(self, x: Tensor) -> Tensor:
        """``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`` (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
        return self._node("gelu", (x,), x.shape)

    def relu(self, x: Tensor) -> Tensor:
        return self._node("relu", (x,), x.shape)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._node("sigmoid", (x,), x.shape)

    def tanh(self, x: Tensor) -> Tensor:
        return self._node("tanh", (x,), x.shape)

    def softplus(self, x: Tensor) -> Tensor:
        """``ln(1 + e^x)``."""
        return self._node("softplus", (x,), x.shape)

    def softmax(self, x: Tensor) -> Tensor:
        """Over the last axis."""
        return self._node("softmax", (x,), x.shape)

    # --- choosing and arranging

    def top_k(self, x: Tensor, k: int) -> Tensor:
        """int32 indices ``[..., k]`` of the ``k`` largest of the last axis, largest first, on a tie the lower index."""
        _need(0 < k <= int(x.shape[-1]), f"top_k: cannot take {k} of {x}")
        return self._node("top_k", (x,), (*x.shape[:-1], k), "i32", k=k)

    def gather(self, x: Tensor, ids: Tensor) -> Tensor:
        """``x [..., n]`` at int32 ``ids [..., k]`` of each row: ``[..., k]``."""
        return self._node("gather", (x, ids), ids.shape)

    def sum(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """Sum over one axis, counted from the end (negative)."""
        _need(-len(x.shape) < axis < 0, f"sum: axis {axis} of {x} must count from the end, after the tokens")
        shape = list(x.shape)
        if keepdims:
            shape[axis] = 1
        else:
            del shape[axis]
        return self._node("sum", (x,), tuple(shape), axis=axis, keepdims=keepdims)

    def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """The same values in another shape; free of cost. The token dimension stays first."""
        new = tuple(shape)
        same = new[0] == x.shape[0] and _size(new[1:]) == _size(x.shape[1:])
        _need(same, f"reshape: {x} does not have the size of {format_shape(new)}")
        return self._node("reshape", (x,), new, x.dtype)

    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Values ``start`` to ``stop`` of the last axis."""
        _need(0 <= start < stop <= int(x.shape[-1]), f"slice: {start}:{stop} is outside {x}")
        return self._node("slice", (x,), (*x.shape[:-1], stop - start), x.dtype, start=start, stop=stop)

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        """``x`` and ``y`` side by side on the last axis; ``y`` broadcasts on the axis before it."""
        fits = len(x.shape) == len(y.shape) and all(
            a == b or b == 1 for a, b in zip(x.shape[:-1], y.shape[:-1], strict=True)
        )
        _need(fits, f"concat: {y} does not fit beside {x}")
        return self._node("concat", (x, y), (*x.shape[:-1], int(x.shape[-1]) + int(y.shape[-1])))

    # --- state spaces

    def conv1d(self, x: Tensor, weight: Weight, bias: Weight | None) -> Tensor:
        """Causal convolution of each channel over time: ``x [t, c]``, ``weight [c, w]``, ``bias [c]``.

        ``y[t] = bias + sum_j weight[:, j] * x[t - w + 1 + j]``; a state keeps the sequence's last ``w - 1`` inputs.
        """
        _need(weight.shape[0] == x.shape[-1], f"{weight} cannot convolve {x}: it needs {x.shape[-1]} channels")
        state = RecurrentState(self._state_name("conv"), (int(weight.shape[1]) - 1, x.shape[-1]))
        return self._node("conv1d", (x, weight, bias, state), x.shape)

    def ssm_scan(self, x: Tensor, dt: Tensor, a: Weight, b: Tensor, c: Tensor, d: Weight) -> Tensor:
        """The selective scan of Mamba (Gu and Dao 2023, arXiv:2312.00752, algorithm 2).

        ``x, dt [t, e]``; ``a [e, n]``; ``b, c [t, n]``; ``d [e]``; a state ``h [e, n]`` for each sequence:
        ``h = h * exp(dt a) + dt x b``, ``y = h . c + d x``: ``[t, e]``. ``dt`` is already positive.
        """
        _need(a.shape == (x.shape[-1], b.shape[-1]), f"{a} does not fit {x} and {b}")
        state = RecurrentState(self._state_name("ssm"), a.shape)
        return self._node("ssm_scan", (x, dt, a, b, c, d, state), x.shape)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise ModelError(message)


def _size(shape: Sequence[Dim]) -> int:
    size = 1
    for dim in shape:
        assert isinstance(dim, int), "only the first dimension may be symbolic"
        size *= dim
    return size


def _check_broadcast(x: Tensor, y: Tensor | None) -> None:
    if y is None:
        return
    fits = len(y.shape) <= len(x.shape) and all(b in (a, 1) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))
    _need(fits, f"{y} does not broadcast to {x}")
