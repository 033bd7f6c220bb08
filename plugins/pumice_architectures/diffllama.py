"""DiffLlama: Llama with differential attention (Ye et al. 2024, arXiv:2410.05258)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import blocks, recurrent
from pumice.plugin.nn.decoder import Decoder


class DiffLlama(Decoder):
    """The second half of the heads is subtracted from the first; a key's value has those of two heads."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, rope = self.heads(i), self.rope(g, i)
        q, k, v = blocks.qkv(g, x, blk, heads)
        if rope:
            q, k = rope(g, q), rope(g, k)
        y = g.attention(q, k, v, scale=heads.k_dim**-0.5)
        n = heads.n_head // 2 * heads.v_dim
        first, second = recurrent.split(g, y.reshape(x.shape[0], 2 * n), n, n)
        y = first + second * g.weight(f"{blk}attn_lambda.weight", (1,)) * -1.0
        y = self.norm(g, y.reshape(x.shape[0], heads.n_head // 2, heads.v_dim), blk + "attn_sub_norm")
        return blocks.linear(g, y.reshape(x.shape[0], n), blk + "attn_output", self.n_embd)
