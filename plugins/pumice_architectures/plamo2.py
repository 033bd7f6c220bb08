"""PLaMo 2 (Preferred Networks 2025, arXiv:2509.04897): Mamba 2 in most layers, attention in the others."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import blocks, optional, recurrent

BARE = ("post_attention_norm", "post_ffw_norm", "ssm_dt_norm", "ssm_b_norm", "ssm_c_norm")


class PLaMo2(recurrent.Hybrid):
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    scaled = optional.ATTENTION_OUTPUT
    ffn = "fused"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply a norm; some names have no suffix in these files, and norms of queries and keys span all heads."""
        ending = "" if name.endswith(BARE) else ".weight"
        return g.rms_norm(x, g.weight(name + ending), self.eps)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        scale = 0.0 if self.recurrent(i) else self.heads(i).v_dim ** -0.5
        return super().attention(g, x, blk, i, scale=scale, **options)

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        space, n_tokens = recurrent.read_state_space(self.hparams), x.shape[0]
        d_inner, n_head, n = space.d_inner, space.rank, space.d_state
        if d_inner % n_head:
            raise self.hparams.wrong(
                "ssm.time_step_rank", f"is {n_head}, expected a number of heads that divides {d_inner} channels"
            )
        both = blocks.linear(g, x, blk + "ssm_in", 2 * d_inner).reshape(n_tokens, n_head, 2 * d_inner // n_head)
        z, h = (y.reshape(n_tokens, d_inner) for y in recurrent.split(g, both, *[d_inner // n_head] * 2))
        h = recurrent.causal_conv(g, h, blk + "ssm_conv1d", space.d_conv)
        rank = max(64, self.n_embd // 16)
        parts = recurrent.split(g, blocks.linear(g, h, blk + "ssm_x", rank + 2 * n), n, n, rank)
        b, c, dt = (self.norm(g, y, f"{blk}ssm_{name}_norm") for y, name in zip(parts, ("b", "c", "dt"), strict=True))
        dt = g.softplus(blocks.linear(g, dt, blk + "ssm_dt", n_head))
        b, c = b.reshape(n_tokens, 1, n), c.reshape(n_tokens, 1, n)
        y = g.silu(z) * recurrent.state_space_duality(g, h, dt, b, c, blk)
        return blocks.linear(g, y, blk + "ssm_out", self.n_embd)
