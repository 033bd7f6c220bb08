"""Trinity (Arcee 2025)."""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding
from pumice.plugin.nn.rope import Rope


class AfMoE(ExpertDecoder):
    """Gated attention, norms before and after each block, sliding windows; experts routed as in DeepSeek V3.

    Only layers with a window have positions.
    """

    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    gate, gate_of_file = "sigmoid", True
    normalize = None
    shared = "expert_shared_count"
    sliding_layers = 4
    own_sliding_rope = True
    attention_gate = "sigmoid"

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) * math.sqrt(self.n_embd)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if is_sliding(self.hparams, i, period=4) else None
