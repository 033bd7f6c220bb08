"""EXAONE 4 (LG AI Research 2025, arXiv:2507.11407)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class Exaone4(Decoder):
    """Norms follow the blocks. Models with a window alternate sliding layers with global ones without positions.

    A file says it by its window; older ones of the 32B model, which has 64 layers, do not. llama.cpp asks the number of
    layers alone.
    """

    norms_before = ("", "")
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    n_layer_32b = 64

    def has_windows(self) -> bool:
        return sliding_window(self.hparams, 4096 if self.n_layer == self.n_layer_32b else 0) > 0

    def window(self, i: int) -> int:
        sliding = self.has_windows() and is_sliding(self.hparams, i, period=4)
        return sliding_window(self.hparams, 4096) if sliding else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.window(i) or not self.has_windows() else None
