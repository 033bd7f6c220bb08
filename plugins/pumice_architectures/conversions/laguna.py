"""Laguna: heads per layer, gated attention, sliding windows with their own RoPE, experts."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import SIGMOID, Conversion, leading_dense_layers, sliding_layers

PERIOD = 4  # layers; the first of each period has no window (not stored in GGUF)


class Laguna(Conversion):
    architecture = "laguna"
    required = ("rope_theta",)
    needed = {"moe_router_logit_softcapping": 0.0}
    named_as = "glm4moe"
    pre_tokenizers = ["laguna"]
    control_tokens = ("</assistant>",)
    integers = {
        "vocab_size": "vocab_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    }
    numbers = {"expert_weights_scale": "moe_routed_scaling_factor"}
    more_names = {
        "model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm",
        "model.layers.{}.self_attn.g_proj": "blk.{}.attn_gate",
        "model.layers.{}.mlp.experts.e_score_correction": "blk.{}.exp_probs_b",
    }
    constants = {"expert_weights_norm": True, "expert_gating_func": SIGMOID}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        slides = sliding_layers(c)
        if slides != [i % PERIOD != 0 for i in range(self.n_layer)]:
            raise c.unsupported("layer_types", f"windows in all layers but the first of each {PERIOD}")
        metadata = super().metadata() | {
            "attention.head_count": c.first("num_attention_heads_per_layer")
            or [c.need("num_attention_heads")] * self.n_layer,
            "leading_dense_block_count": leading_dense_layers(c) or 0,
            "rope.dimension_count": self.n_rot(),
        }
        if c.first("sliding_window"):
            metadata["attention.sliding_window"] = c.need("sliding_window")
        if (sliding := c.rope.get("sliding_attention")) is not None:
            metadata["rope.dimension_count_swa"] = int(self.head_dim * float(sliding.get("partial_rotary_factor", 1.0)))
        return metadata

    def other_metadata(self) -> dict[str, Any]:
        """Add the end-of-turn token, the second of several end tokens."""
        ends, first = self.config.first("eos_token_id"), self.config.first("bos_token_id")
        others = [id for id in ends if id != first] if isinstance(ends, list) else []
        return {"tokenizer.ggml.eot_token_id": others[0]} if others else {}
