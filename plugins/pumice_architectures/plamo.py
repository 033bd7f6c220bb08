"""PLaMo 13B (Preferred Networks 2023) and PLaMo 3 (2025)."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope, frequency_base


class Plamo(Decoder):
    """One norm, then parallel attention and feed-forward blocks."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        return x + (self.attention(g, h, blk, i) + self.feed_forward(g, h, blk, i))


class Plamo3(Decoder):
    """Norms before and after each block, and sliding windows in all but every eighth layer."""

    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    scaled = optional.ATTENTION_OUTPUT
    ffn = "fused"
    sliding_layers = 8

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        if ".post_" in name:  # these tensor names have no suffix
            return g.rms_norm(x, g.weight(name, (self.n_embd,)), self.eps)
        return super().norm(g, x, name)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope and self.window(i):
            rope = replace(rope, freq_base=frequency_base(self.hparams, "rope.freq_base_swa"), freq_scale=1.0)
        return rope
