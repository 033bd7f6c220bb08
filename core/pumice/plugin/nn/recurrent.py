"""Blocks with recurrent states: the state spaces of Mamba, and decoders that mix such blocks with attention."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import Norm, linear, width
from pumice.plugin.nn.decoder import Decoder


class Hybrid(Decoder):
    """A decoder in which some layers have a block with a recurrent state instead of attention."""

    #: Like ``scaled``, for the layers with a recurrent state; None for the same.
    scaled_nets: ClassVar[frozenset[str] | None] = None

    def scaled_in(self, i: int) -> frozenset[str]:
        if self.scaled_nets is None or not (0 <= i < self.n_layer and self.recurrent(i)):
            return self.scaled
        return self.scaled_nets

    def recurrent(self, i: int) -> bool:
        """Return True if layer ``i`` has a recurrent state; most files mark it by 0 key heads."""
        return self.hparams.count("attention.head_count_kv", i, low=0) == 0

    @abstractmethod
    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Return the result of a recurrent block for a normalized ``x``."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return self.mixer(g, x, blk, i) if self.recurrent(i) else super().attention(g, x, blk, i, **options)


def attends(hparams: HParams, i: int, interval: int) -> bool:
    """Return True if layer ``i`` has attention, by ``attention.recurrent_layers`` or by an interval."""
    key = "attention.recurrent_layers"
    if f"{hparams.architecture}.{key}" in hparams.metadata:
        return not hparams.per_layer(key, i + 1)[i]
    interval = hparams.get_int("full_attention_interval", interval)
    if interval < 1:
        raise hparams.wrong("full_attention_interval", f"is {interval}, but must be at least 1")
    return (i + 1) % interval == 0


# --- small pieces


def causal_conv(g: GraphBuilder, x: Tensor, name: str, n_taps: int, dilation: int = 1) -> Tensor:
    """Return SiLU of each channel's convolution over ``n_taps`` tokens, ``dilation`` apart, with an optional bias."""
    weight = g.weight(f"{name}.weight", (width(x), n_taps))
    if dilation > 1:
        shape = width(x), (n_taps - 1) * dilation + 1
        weight = g.derived(f"{name}.weight, {dilation} apart", shape, lambda taps: _apart(taps, dilation), weight)
    return g.silu(g.conv1d(x, weight, g.find_weight(f"{name}.bias", (width(x),))))


def _apart(taps: NDArray[np.float32], dilation: int) -> NDArray[np.float32]:
    """Insert zeros between the taps ``[c, w]``."""
    n_channels, n_taps = taps.shape
    wide = np.zeros((n_channels, (n_taps - 1) * dilation + 1), np.float32)
    wide[:, ::dilation] = taps
    return wide


def l2_norm(g: GraphBuilder, x: Tensor, eps: float, scale: float = 1.0) -> Tensor:
    """Return ``scale * x / sqrt(sum x^2 + eps)`` over the last axis."""
    return g.rms_norm(x, None, eps / width(x)) * (scale * width(x) ** -0.5)


def split(g: GraphBuilder, x: Tensor, *widths: int) -> list[Tensor]:
    """Split the last axis into parts of these widths."""
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    return [g.slice(x, end - n, end) for end, n in zip(ends, widths, strict=True)]


# --- state spaces


@dataclass(frozen=True)
class StateSpace:
    """Sizes of a selective state space. ``rank`` is that of Mamba's time steps, or Mamba 2's number of heads."""

    d_inner: int
    d_conv: int
    d_state: int
    rank: int
    n_group: int = 1


def read_state_space(hparams: HParams, *, heads: bool = False) -> StateSpace:
    """Read the sizes; ``heads``: of Mamba 2, whose heads share inputs and outputs of the state in groups."""
    space = StateSpace(
        d_inner=hparams.positive("ssm.inner_size"),
        d_conv=hparams.positive("ssm.conv_kernel"),
        d_state=hparams.positive("ssm.state_size"),
        rank=hparams.positive("ssm.time_step_rank"),
        n_group=hparams.positive("ssm.group_count") if heads else 1,
    )
    if heads and (space.d_inner % space.rank or space.rank % space.n_group):
        problem = f"is {space.rank} heads, for {space.d_inner} channels in {space.n_group} groups"
        raise hparams.wrong("ssm.time_step_rank", problem)
    return space


def mamba(g: GraphBuilder, x: Tensor, blk: str, space: StateSpace, norm: Norm | None = None) -> Tensor:
    """Return Mamba's block (Gu and Dao 2023, arXiv:2312.00752). ``norm`` normalizes time steps, B and C."""
    d_inner, rank, n = space.d_inner, space.rank, space.d_state
    h, z = split(g, linear(g, x, blk + "ssm_in", 2 * d_inner), d_inner, d_inner)
    h = causal_conv(g, h, blk + "ssm_conv1d", space.d_conv)
    dt, b, c = split(g, linear(g, h, blk + "ssm_x", rank + 2 * n), rank, n, n)
    if norm:
        dt, b, c = (norm(g, y, f"{blk}ssm_{name}_norm") for y, name in ((dt, "dt"), (b, "b"), (c, "c")))
    dt = g.softplus(linear(g, dt, blk + "ssm_dt", d_inner))
    a, d = g.weight(f"{blk}ssm_a", (d_inner, n)), g.weight(f"{blk}ssm_d", (d_inner,))
    return linear(g, g.silu(z) * g.ssm_scan(h, dt, a, b, c, d), blk + "ssm_out", width(x))


def mamba2(
    g: GraphBuilder, x: Tensor, blk: str, space: StateSpace, eps: float, *, may_lack_norm: bool = False
) -> Tensor:
    """Mamba 2's block (Dao and Gu 2024, arXiv:2405.21060)."""
    d_inner, n_head, n_group = space.d_inner, space.rank, space.n_group
    d_group = n_group * space.d_state
    d_conv = d_inner + 2 * d_group
    z, xbc, dt = split(g, linear(g, x, blk + "ssm_in", d_inner + d_conv + n_head), d_inner, d_conv, n_head)
    h, b, c = split(g, causal_conv(g, xbc, blk + "ssm_conv1d", space.d_conv), d_inner, d_group, d_group)
    dt = g.softplus(dt + g.weight(f"{blk}ssm_dt.bias", (n_head,)))
    b, c = (y.reshape(x.shape[0], n_group, space.d_state) for y in (b, c))
    y = state_space_duality(g, h, dt, b, c, blk)
    y = g.silu(z) * y
    if not may_lack_norm or g.find_weight(f"{blk}ssm_norm.weight"):
        y = _group_norm(g, y, f"{blk}ssm_norm.weight", n_group, eps)
    return linear(g, y, blk + "ssm_out", width(x))


def _group_norm(g: GraphBuilder, x: Tensor, name: str, n_group: int, eps: float) -> Tensor:
    """Apply RMS norm to each group of values."""
    if n_group == 1:
        return g.rms_norm(x, g.weight(name, (width(x),)), eps)
    groups = n_group, width(x) // n_group
    return g.rms_norm(x.reshape(x.shape[0], *groups), g.weight(name, groups), eps).reshape(*x.shape)


def state_space_duality(g: GraphBuilder, x: Tensor, dt: Tensor, b: Tensor, c: Tensor, blk: str) -> Tensor:
    """Compute Mamba 2's scan as linear attention with C as queries, B as keys, ``dt * x`` as values, plus ``D * x``.

    ``x [t, d_inner]``; ``dt [t, h]``, positive; ``b, c [t, n_group, d_state]``.
    """
    n_head = width(dt)
    heads = x.reshape(x.shape[0], n_head, width(x) // n_head)
    decay = g.exp(dt * g.weight(blk + "ssm_a", (n_head,)))
    y = g.linear_attention(c, b, heads * dt.reshape(x.shape[0], n_head, 1), decay)
    return (y + heads * g.weight(blk + "ssm_d", (n_head, 1))).reshape(*x.shape)
