"""OLMo 2 (2025, arXiv:2501.00656) and OLMo 3, which adds sliding windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class Olmo2(Decoder):
    """Norms follow the blocks instead of preceding them."""

    norms_before = ("", "")
    norms_after = ("post_attention_norm", "post_ffw_norm")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, norm=self.norm_all_heads, **options)

    def norm_all_heads(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """One norm over the heads of a token together."""
        tokens, heads, values = x.shape
        return self.norm(g, x.reshape(tokens, int(heads) * int(values)), name).reshape(tokens, heads, values)

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope and self.window(i):  # only layers that see the whole context are scaled
            rope = replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0)
        return rope
