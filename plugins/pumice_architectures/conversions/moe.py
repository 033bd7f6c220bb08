"""Families with experts in a layout of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import SIGMOID, SOFTMAX, Conversion, LazyTensor, in_layers, sliding_layers


class DBRX(Conversion):
    """DBRX: the matrices of all experts are side by side."""

    architecture = "dbrx"
    pre_tokenizers = ["dbrx"]
    float32 = ()

    def metadata(self) -> dict[str, Any]:
        c = self.config
        ffn, attention = c.section("ffn_config"), c["attn_config"]
        ffn.expect("moe_normalize_expert_weights", 1)
        if (ffn.get("ffn_act_fn") or {}).get("name", "silu") != "silu":
            raise ffn.unsupported("ffn_act_fn", "'silu'")
        return {
            "block_count": self.n_layer,
            "context_length": c.need("max_seq_len"),
            "embedding_length": c.need("d_model"),
            "feed_forward_length": ffn["ffn_hidden_size"],
            "attention.head_count": c.need("n_heads"),
            "attention.head_count_kv": attention["kv_n_heads"],
            "rope.freq_base": float(attention["rope_theta"]),
            "attention.clamp_kqv": float(attention["clip_qkv"]),
            "expert_count": ffn["moe_num_experts"],
            "expert_used_count": ffn["moe_top_k"],
            "attention.layer_norm_epsilon": 1e-5,
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".experts.mlp." in name:
            ffn = self.config["ffn_config"]
            tensor = tensor.reshape(ffn["moe_num_experts"], ffn["ffn_hidden_size"], self.config.need("d_model"))
            yield self.names(f"{name}.weight"), tensor.transpose(0, 2, 1) if name.endswith("w2") else tensor
        else:
            yield from super().convert(name, tensor)


class Arctic(Conversion):
    """Arctic: experts in parallel with a dense block."""

    architecture = "arctic"
    vocabularies = ["sentencepiece"]
    integers = {"vocab_size": "vocab_size"}
    renames = {r"^model\.(.*)block_sparse_moe\.experts": r"\1feed_forward.experts"}
    computed = {
        "rope.dimension_count": lambda self: self.config.need("hidden_size") // self.config.need("num_attention_heads"),
    }
    interleaves = True


class Grok(Conversion):
    """Grok 1 and 2: soft caps, multipliers."""

    architecture = "grok"
    hidden_act = ""
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["grok-2"]
    integers = {"attention.temperature_length": "attn_temperature_len"}
    numbers = {
        "attn_logit_softcapping": "attn_logit_softcapping",
        "router_logit_softcapping": "router_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "embedding_scale": "embedding_multiplier_scale",
        "logit_scale": "output_multiplier_scale",
        "attention.output_scale": "attn_output_multiplier",
    }
    defaults = {"attn_logit_softcapping": 30.0, "router_logit_softcapping": 30.0}
    renames = {
        r"^model\.layers\.(\d+)\.block_sparse_moe\.experts\.": r"transformer.decoder_layer.\1.moe.experts.",
        r"^transformer\.decoder_layer\.(\d+)\.moe\.(?=\d)": r"transformer.decoder_layer.\1.moe.experts.",
        r"(moe\.experts\.\d+)\.w1\.": r"\1.linear.",
        r"(moe\.experts\.\d+)\.w2\.": r"\1.linear_1.",
        r"(moe\.experts\.\d+)\.w3\.": r"\1.linear_v.",
    }
    YARN = {
        "rope.scaling.factor": "scaling_factor",
        "rope.scaling.yarn_ext_factor": "extrapolation_factor",
        "rope.scaling.yarn_attn_factor": "attn_factor",
        "rope.scaling.yarn_beta_fast": "beta_fast",
        "rope.scaling.yarn_beta_slow": "beta_slow",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = {"attention.output_scale": self.head_dim**-0.5} | super().metadata()
        if c.first("rope_type") in ("yarn", "original"):
            metadata |= {"rope.scaling.type": "yarn"} | {key: float(c[name]) for key, name in self.YARN.items()}
            metadata["rope.scaling.original_context_length"] = c.need("original_max_position_embeddings")
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name.replace(".moe.experts.", ".moe."), tensor)


class SmallThinker(Conversion):
    """SmallThinker: the router reads the input of attention; sliding windows in some layers."""

    architecture = "smallthinker"
    hidden_act = ""
    pre_tokenizers = ["qwen2"]
    integers = {
        "expert_count": "moe_num_primary_experts",
        "expert_used_count": "moe_num_active_primary_experts",
        "expert_feed_forward_length": "moe_ffn_hidden_size",
        "feed_forward_length": "moe_ffn_hidden_size",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata()
        metadata["expert_gating_func"] = SOFTMAX if c.first("moe_primary_router_apply_softmax") else SIGMOID
        if any(c.first("sliding_window_layout") or ()) and c.first("sliding_window_size"):
            metadata["attention.sliding_window"] = c.need("sliding_window_size")
        return metadata


class JetMoE(Conversion):
    """JetMoE: experts in feed-forward blocks and in attention."""

    architecture = "jetmoe"
    inner_eps = 1e-6
    named_as = "llama"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {
        "vocab_size": "vocab_size",
        "attention.key_length": "kv_channels",
        "attention.value_length": "kv_channels",
        "rope.dimension_count": "kv_channels",
    }
    renames = {r"(mlp|experts)\.bias$": r"\1.output.bias"}
    joined = {"kv_proj": ("k_proj", "v_proj")}
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "self_attention.experts.router.layer": "attn_gate_inp", "self_attention.experts.input_linear": "attn_q_exps",
        "self_attention.experts.output_linear": "attn_output_exps", "self_attention.experts.output": "attn_output",
        "self_attention.k_proj": "attn_k", "self_attention.v_proj": "attn_v", "mlp.router.layer": "ffn_gate_inp",
        "mlp.input_linear": "ffn_gate_up_exps", "mlp.output_linear": "ffn_down_exps", "mlp.output": "ffn_down",
    })  # fmt: skip


class Maple(Conversion):
    """Maple: sliding windows, layers without positions, clamped experts."""

    architecture = "maple"
    named_as = "qwen3moe"
    integers = {
        "vocab_size": "vocab_size",
        "attention.sliding_window": "sliding_window",
    }
    LIMIT = 7.0  # limit of gate and up activations, missing in configurations
    computed = {
        "rope.dimension_count": lambda self: self.n_rot(),
        "attention.sliding_window_pattern": lambda self: sliding_layers(self.config),
        "swiglu_clamp_exp": lambda self: [self.LIMIT] * self.n_layer,
    }
