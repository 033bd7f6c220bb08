"""OLMo Hybrid (Ai2 2026): gated delta nets between layers of OLMo 3."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import blocks, recurrent
from pumice.plugin.nn.decoder import Decoder, NormNames
from pumice.plugin.nn.rope import Rope
from pumice_architectures.qwen_next import Qwen3Next, separate_alpha_beta

NET_EPS = 1e-5  # epsilon of the norm of a delta net's results


class OlmoHybrid(Qwen3Next):
    """Norms precede the blocks of layers with a delta net, and follow those of layers with attention."""

    drafts = ""
    qk_norm = "before rope"
    qk_norm_is_wide = True

    def norm_names(self, i: int) -> NormNames:
        if self.recurrent(i):
            return ("attn_norm", "ffn_norm"), ("", "")
        return ("", ""), ("post_attention_norm", "post_ffw_norm")

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.rms_norm(g, x, name, NET_EPS if name.endswith("ssm_norm") else self.eps)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return recurrent.Hybrid.attention(self, g, x, blk, i, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.hparams.get_int("rope.dimension_count") else None

    def alpha_beta(self, g: GraphBuilder, x: Tensor, blk: str) -> tuple[Tensor, Tensor]:
        return separate_alpha_beta(g, x, blk, self.n_value_heads)

    def fraction(self, g: GraphBuilder, beta: Tensor) -> Tensor:
        """Return up to 2, so that the state may change its sign, unless the file says otherwise."""
        return super().fraction(g, beta) * (2.0 if self.hparams.get_bool("ssm.negative_eigenvalues", True) else 1.0)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return Decoder.feed_forward(self, g, x, blk, i)
