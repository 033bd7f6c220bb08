"""Mamba (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.decoder import Decoder


class Mamba(Decoder):
    """No attention: a selective state space instead, whose memory does not grow with the context."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.d_inner = hparams.positive("ssm.inner_size")
        self.d_conv = hparams.positive("ssm.conv_kernel")
        self.d_state = hparams.positive("ssm.state_size")
        self.dt_rank = hparams.positive("ssm.time_step_rank")
        self.norm_dt_b_c = hparams.get_bool("ssm.dt_b_c_rms", False)  # Falcon Mamba

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        xz = linear(g, self.norm(g, x, blk + "attn_norm"), blk + "ssm_in", 2 * self.d_inner)
        h, z = g.slice(xz, 0, self.d_inner), g.slice(xz, self.d_inner, 2 * self.d_inner)

        kernel = g.weight(f"{blk}ssm_conv1d.weight", (self.d_inner, self.d_conv))
        h = g.silu(g.conv1d(h, kernel, g.weight(f"{blk}ssm_conv1d.bias", (self.d_inner,))))

        dt, b, c = self.selection(g, h, blk)
        a = g.weight(f"{blk}ssm_a", (self.d_inner, self.d_state))
        y = g.ssm_scan(h, dt, a, b, c, g.weight(f"{blk}ssm_d", (self.d_inner,)))
        return x + linear(g, g.silu(z) * y, blk + "ssm_out", self.n_embd)

    def selection(self, g: GraphBuilder, h: Tensor, blk: str) -> tuple[Tensor, Tensor, Tensor]:
        """Time steps ``[t, d_inner]``, and what enters and leaves the state, ``[t, d_state]`` each."""
        rank, n = self.dt_rank, self.d_state
        parts = linear(g, h, blk + "ssm_x", rank + 2 * n)
        dt, b, c = g.slice(parts, 0, rank), g.slice(parts, rank, rank + n), g.slice(parts, rank + n, rank + 2 * n)
        if self.norm_dt_b_c:
            dt, b, c = (g.rms_norm(part, None, self.eps) for part in (dt, b, c))
        return g.softplus(linear(g, dt, blk + "ssm_dt", self.d_inner)), b, c
