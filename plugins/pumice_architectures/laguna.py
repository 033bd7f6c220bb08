"""Laguna (Poolside 2026)."""

from __future__ import annotations

from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window


class Laguna(ExpertDecoder):
    """Softplus-gated attention; sliding windows except in every fourth layer, whose RoPE alone is scaled."""

    qk_norm = "before rope"
    gate, gate_of_file = "sigmoid", True
    normalize = None
    attention_gate = "softplus"
    own_sliding_rope = unscaled_sliding_rope = True

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4, first_global=True) else 0

    def shared_width(self, i: int) -> int:
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0)
        return n_ff or self.experts(i).n_ff * self.hparams.count("expert_shared_count", i, default=1, low=0)
