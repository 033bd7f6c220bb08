"""xLSTM (Beck et al. 2024, arXiv:2405.04517; 7B: 2025, arXiv:2503.13427): a matrix memory per head, no attention."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import linear, qkv, softcap
from pumice.plugin.nn.decoder import Decoder


class XLSTM(Decoder):
    """The memory is linear attention, whose values have a 1 more: its result is the sum that normalizes the others."""

    logit_softcap = 0.0

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, n_tokens = self.heads(i), x.shape[0]
        n_head, dim, n = heads.n_head, heads.v_dim, heads.n_head * heads.v_dim
        q, k, v = qkv(g, x, blk, heads)
        cap = self.hparams.number("gate_softcapping")
        read, write = (softcap(g, linear(g, x, f"{blk}attn_{name}_gate", n_head), cap) for name in ("forget", "input"))
        k = k * g.exp(write).reshape(n_tokens, n_head, 1)
        v = g.concat(v, g.scale(g.slice(v, 0, 1), 0.0, 1.0))
        y = g.linear_attention(q * heads.k_dim**-0.5, k, v, g.sigmoid(read))
        total = g.slice(y, dim, dim + 1)
        size = g.clamp(g.relu(total) + g.relu(total * -1.0), 1.0, float("inf"))
        y = g.layer_norm(g.slice(y, 0, dim) / size, None, None, self.eps).reshape(n_tokens, n)
        y = y * g.weight(f"{blk}attn_sub_norm.weight", (n,)) * g.sigmoid(linear(g, x, f"{blk}attn_gate", n))
        return linear(g, y, f"{blk}attn_output", self.n_embd)
