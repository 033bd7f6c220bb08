"""Muse Glimmer (Meta 2026)."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import rms_norm, softcap
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope

EPS_AFTER = 1e-8  # epsilon of the norms after a block


class MuseGlimmer(Decoder):
    """Gated attention, norms before and after each block; sliding layers have positions, every fourth has none."""

    neox = False
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    attention_gate = "sigmoid"
    rope_layers = "sliding"
    own_sliding_rope = True

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.rms_norm(super().embed(g), None, self.eps)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return rms_norm(g, x, name, EPS_AFTER if name.endswith(self.norms_after) else self.eps)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        logits = super().head(g, x) * self.hparams.number("logit_scale")
        return softcap(g, logits, self.hparams.number("final_logit_softcapping", 30.0))

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, None) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return rope and replace(rope, freq_scale=1.0)
