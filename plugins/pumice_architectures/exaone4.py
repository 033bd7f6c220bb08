"""EXAONE 4 (LG AI Research 2025, arXiv:2507.11407)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class Exaone4(Decoder):
    """Norms follow the blocks. The 32B model alternates sliding layers with global ones without positions."""

    norms_before = ("", "")
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    n_layer_32b = 64

    def window(self, i: int) -> int:
        sliding = self.n_layer == self.n_layer_32b and is_sliding(self.hparams, i, period=4)
        return sliding_window(self.hparams, 4096) if sliding else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.window(i) or self.n_layer != self.n_layer_32b else None
