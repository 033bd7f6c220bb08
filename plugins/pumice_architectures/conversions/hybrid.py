"""Hybrids of attention with state spaces or convolutions: Jamba, LFM 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import SIGMOID, Conversion, LazyTensor, in_layers, layer_of, pooling, sliding_layers
from pumice_architectures.conversions.mamba import decay
from pumice_architectures.conversions.rope_factors import proportional


class Jamba(Conversion):
    """Jamba: Mamba, with attention in some layers and experts in some."""

    architecture = "jamba"
    vocabularies = ["sentencepiece", "fast_sentencepiece"]
    without = ("rope.", "attention.key_length", "attention.value_length", "vocab_size")
    renames = {r"\.moe\.": ".feed_forward."}
    changes = {".A_log": decay, "conv1d.weight": LazyTensor.squeeze}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size", "mamba_d_model")
        offset, period = c.need("attn_layer_offset", least=0), c.need("attn_layer_period")
        n_head_kv = c.need("num_key_value_heads")
        attends = [i >= offset and (i - offset) % period == 0 for i in range(self.n_layer)]
        return super().metadata() | {
            "attention.head_count_kv": [n_head_kv if attends_here else 0 for attends_here in attends],
            "ssm.conv_kernel": c.first("mamba_d_conv") or 4,
            "ssm.inner_size": c.need("mamba_expand") * n_embd,
            "ssm.state_size": c.first("mamba_d_state") or 16,
            "ssm.time_step_rank": c.first("mamba_dt_rank") or -(-n_embd // 16),
            "attention.layer_norm_rms_epsilon": float(c.first("layer_norm_epsilon", "rms_norm_eps") or 1e-6),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {} if self.folder.has("tokenizer.model") else {"tokenizer.ggml.add_space_prefix": False}

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        offset, period = self.config.need("expert_layer_offset", least=0), self.config.need("expert_layer_period")
        layer = layer_of(name)
        has_experts = layer >= offset and (layer - offset) % period == 0
        return new_name if new_name is None or has_experts else new_name.replace(".experts.0.", ".")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        name = name.replace(".feed_forward.experts.", ".mlp.experts.")
        yield from super().convert(name, tensor)


class LFM2(Conversion):
    """LFM 2: short convolutions, with attention in some layers."""

    architecture = "lfm2"
    needed = {"conv_bias": False}
    pre_tokenizers = ["lfm2"]
    integers = {"vocab_size": "vocab_size", "shortconv.l_cache": "conv_L_cache"}
    renames = {r"lfm\.": "model.", r"\.expert_bias$": ".expert_bias.bias"}
    changes = {"conv.conv.weight": LazyTensor.squeeze}

    def metadata(self) -> dict[str, Any]:
        c, kinds = self.config, self.config.first("layer_types")
        n_head_kv = c.need("num_key_value_heads")
        whole = [i for i, kind in enumerate(kinds) if kind == "full_attention"] if kinds else c["full_attn_idxs"]
        return super().metadata() | {
            "attention.head_count_kv": [n_head_kv if i in whole else 0 for i in range(self.n_layer)],
            "feed_forward_length": self._n_ff(),
        }

    def _n_ff(self) -> int:
        c = self.config
        width, multiple = c.need("block_ff_dim", "intermediate_size"), c.first("block_multiple_of") or 256
        if c.first("block_auto_adjust_ff_dim") is False:
            return width
        width = int(float(c.first("block_ffn_dim_multiplier") or 1.0) * int(2 * width / 3))
        return -(-width // multiple) * multiple


class LFM3(LFM2):
    """LFM3: sliding windows in some layers, norms around the blocks, gates of heads."""

    architecture = "lfm3"
    named_as = "lfm2"
    integers = LFM2.integers | {"attention.sliding_window": "sliding_window"}
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "self_attn.gate_proj": "attn_gate", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "self_attn.o_proj": "attn_output", "post_operator_norm": "post_attention_norm",
        "post_ffn_norm": "post_ffw_norm",
    })  # fmt: skip

    def metadata(self) -> dict[str, Any]:
        kinds, n_head_kv = self.config["layer_types"], self.config.need("num_key_value_heads")
        return super().metadata() | {
            "attention.head_count_kv": [0 if kind == "conv" else n_head_kv for kind in kinds],
            "attention.sliding_window_pattern": sliding_layers(self.config),
        }

    def _n_ff(self) -> int:
        return self.config.need("intermediate_size")

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from proportional(self.config, self.head_dim)


class LFM2Embedding(LFM2):
    """LFM 2 for embeddings, with a projection after its last norm."""

    renames = {r"^(?!dense_2|model\.)": "model."}
    DENSE = "1_Dense/model.safetensors"  # path in the layout of sentence-transformers

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        if self.folder.has(self.DENSE):
            yield "dense_2.weight", self.folder.tensors_of(self.DENSE)["linear.weight"]

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata() | pooling(self.folder)
        for _, dense in self.more_tensors():
            metadata["embedding_length_out"] = dense.shape[0]
        return metadata | ({"attention.causal": False} if "Bidirectional" in self.config.model_class else {})


class LFM2MoE(LFM2):
    """LFM 2 with experts."""

    architecture = "lfm2moe"
    required = ("rope_theta",)
    needed = LFM2.needed | {"norm_topk_prob": True, "routed_scaling_factor": 1.0}
    integers = LFM2.integers | {"leading_dense_block_count": "num_dense_layers"}
    constants = {"expert_gating_func": SIGMOID}

    def _n_ff(self) -> int:
        return self.config.need("intermediate_size")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        is_expert = ".feed_forward.experts." in name
        yield from super().convert(name.removeprefix("model.") if is_expert else name, tensor)
