"""Cohere's Command models."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import SOFTMAX, Conversion, leading_dense_layers, sliding_layers


class CommandR(Conversion):
    """Command R: RoPE scaling is dropped, and the context is longer than the configuration's."""

    architecture = "command-r"
    required = ("rope_theta",)
    pre_tokenizers = ["command-r"]
    constants = {"rope.scaling.type": "none"}
    computed = {
        "context_length": lambda self: self.config.need("model_max_length", "max_position_embeddings"),
        "logit_scale": lambda self: float(self.config.first("logit_scale") or 0.0625),
    }


class Cohere2(Conversion):
    """Command R7B and Command A: sliding windows; biases of norms are zero and dropped."""

    architecture = "cohere2"
    window_period = 4
    pre_tokenizers = ["command-r"]
    unused = ("norm.bias",)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "logit_scale": float(self.config.first("logit_scale") or 0.0625),
            "attention.sliding_window": self.config.need("sliding_window"),
            "vocab_size": self.config.need("vocab_size"),
            "rope.dimension_count": int(float(self.config.first("rotary_pct") or 1.0) * self.head_dim),
            "rope.scaling.type": "none",
        }


class CohereCompass(Cohere2):
    """Compass: Command A's layers with halves of heads instead of pairs, and RoPE settings for each kind of layer."""

    interleaves = True

    def metadata(self) -> dict[str, Any]:
        rope = self.config.rope
        if rope.get("full_attention"):
            raise self.config.unsupported(self.config.rope_key, "RoPE in sliding layers alone")
        return super().metadata() | {
            "logit_scale": float(self.config.first("logit_scale") or 1.0),
            "attention.sliding_window_pattern": sliding_layers(self.config),
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": float(rope["sliding_attention"]["rope_theta"]),
        }


class Cohere2MoE(Conversion):
    """Command A with experts."""

    architecture = "cohere2moe"
    defaults = {"expert_gating_func": SOFTMAX}
    needed = {"attention_bias": False}
    named_as = "glm4moe"
    pre_tokenizers = ["cohere2moe"]
    unused = (".bias",)
    n_draft_name = "num_nextn_predict_layers"
    integers = {
        "vocab_size": "vocab_size",
        "attention.sliding_window": "sliding_window",
        "expert_feed_forward_length": "intermediate_size",
        "rope.dimension_count": "head_dim",
    }
    numbers = {"logit_scale": "logit_scale"}
    constants = {"rope.scaling.type": "none"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_dense = leading_dense_layers(c)
        metadata = super().metadata() | {
            "attention.sliding_window_pattern": sliding_layers(c),
            "leading_dense_block_count": c.first("first_k_dense_replace") or 0 if n_dense is None else n_dense,
            "expert_weights_norm": bool(c.first("norm_topk_prob")) or c.first("expert_selection_fn") == "softmax",
        }
        if n_shared := c.first("num_shared_experts"):
            metadata["expert_shared_count"] = n_shared
            metadata["expert_shared_feed_forward_length"] = n_shared * c.need("intermediate_size")
        return metadata
