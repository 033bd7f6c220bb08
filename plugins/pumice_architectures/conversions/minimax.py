"""MiniMax."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import Conversion, ConvertError


class MiniMaxM2(Conversion):
    """MiniMax M2."""

    architecture = "minimax-m2"
    pre_tokenizers = ["minimax-m2"]
    integers = {"expert_feed_forward_length": "intermediate_size", "rope.dimension_count": "rotary_dim"}
    defaults = {"expert_gating_func": 2}  # sigmoid


class MiniMax01(Conversion):
    """MiniMax Text 01 and M1: lightning attention in most layers."""

    architecture = "minimax-01"
    pre_tokenizers = ["minimax-m2"]
    integers = {"rope.dimension_count": "rotary_dim"}
    numbers = {"residual_scale": "layernorm_full_attention_alpha"}
    renames = {r"^model\.(.*)block_sparse_moe\.experts": r"\1feed_forward.experts"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        alphas = {c.first(f"layernorm_{part}_alpha") for part in ("full_attention", "linear_attention", "mlp")}
        betas = {c.first(f"layernorm_{part}_beta") for part in ("full_attention", "linear_attention", "mlp")}
        if len(alphas) > 1 or betas != {1.0}:
            raise ConvertError(f"{c.path}: 'layernorm_*_alpha' must be alike, and 'layernorm_*_beta' 1")
        return super().metadata()
