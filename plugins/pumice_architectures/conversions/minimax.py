"""MiniMax."""

from __future__ import annotations

from pumice.plugin.convert import Conversion


class MiniMaxM2(Conversion):
    """MiniMax M2."""

    architecture = "minimax-m2"
    pre_tokenizers = ["minimax-m2"]
    integers = {"expert_feed_forward_length": "intermediate_size", "rope.dimension_count": "rotary_dim"}
    defaults = {"expert_gating_func": 2}  # sigmoid
