"""OLMo 2 (2025, arXiv:2501.00656) and OLMo 3, which adds sliding windows."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class Olmo2(Decoder):
    """Norms follow the blocks instead of preceding them."""

    norms_before = ("", "")
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    qk_norm_is_wide = True

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope and self.window(i):  # only global layers scale RoPE
            rope = replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0)
        return rope


class FlexOlmo(ExpertDecoder, Olmo2):
    """OLMo 2 with experts (FlexOlmo, Shi et al. 2025, arXiv:2507.07024)."""

    normalize = None
    expert_width = "feed_forward_length"
