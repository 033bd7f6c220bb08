"""K-EXAONE (LG AI Research 2026)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class ExaoneMoE(ExpertDecoder):
    """Sliding layers have positions; every fourth layer attends globally and has none."""

    qk_norm = "before rope"
    gate, gate_of_file = "", True
    normalize = None

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, None) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if is_sliding(self.hparams, i, period=4) else None

    def shared_width(self, i: int) -> int:
        return self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0) or self.experts(i).n_ff
