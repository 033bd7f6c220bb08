"""Kolibri 1 and Flint: experts, windows with positions and whole layers without."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin.convert import SIGMOID, Conversion, LazyTensor, sliding_layers
from pumice_architectures.conversions.qwen import packed_experts


class Kolibri(Conversion):
    architecture = "kolibri"
    named_as = "qwen3moe"
    pre_tokenizers = ["gpt-2"]
    integers = {
        "vocab_size": "vocab_size",
        "attention.sliding_window": "sliding_window",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    }
    flags = {"expert_weights_norm": "norm_topk_prob"}
    constants = {"expert_gating_func": SIGMOID}
    more_names = {
        "model.layers.{}.post_attn_norm": "blk.{}.post_attention_norm",
        "model.layers.{}.post_ffn_norm": "blk.{}.post_ffw_norm",
        "model.layers.{}.self_attn.softmax_offset": "blk.{}.attn_sinks.weight",
        "model.layers.{}.moe.router.expert_bias": "blk.{}.exp_probs_b.bias",
        **{
            f"model.layers.{{}}.mlp.{name}{part}_proj": f"blk.{{}}.ffn_{part}{suffix}"
            for name, suffix in (("", ""), ("shared_expert.", "_shexp"), ("shared_experts.", "_shexp"))
            for part in ("gate", "up", "down")
        },
    }
    computed = {"attention.sliding_window_pattern": lambda self: sliding_layers(self.config)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from packed_experts(self, name, tensor)


class Flint(Kolibri):
    """Flint: attention sinks, and dense layers."""

    architecture = "flint"
