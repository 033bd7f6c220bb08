"""Trinity (Arcee 2025)."""

from __future__ import annotations

import math
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import attention_gate
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope, sliding_rope

NO_ROPE_STEP = 4  # every fourth layer has no positions


class AfMoE(ExpertDecoder):
    """Gated attention, norms before and after each block, sliding windows; experts routed as in DeepSeek V3."""

    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    gate, gate_of_file = "sigmoid", True
    normalize = None
    shared = "expert_shared_count"

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) * math.sqrt(self.n_embd)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        finish = attention_gate(g, x, blk, self.heads(i), g.sigmoid)
        return super().attention(g, x, blk, i, finish=finish, **options)

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or (i + 1) % NO_ROPE_STEP == 0:
            return None
        return sliding_rope(self.hparams, rope, self.heads(i).k_dim) if self.window(i) else rope
