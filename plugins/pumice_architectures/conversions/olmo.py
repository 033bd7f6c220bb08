"""OLMo, all generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor, concatenate, in_layers, layer_of, sliding_layers
from pumice_architectures.conversions.mamba import decay
from pumice_architectures.conversions.qwen import packed_experts


class Olmo(Conversion):
    """OLMo 1: norms without weights."""

    architecture = "olmo"
    pre_tokenizers = ["olmo"]
    interleaves = True

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata() | {"attention.layer_norm_epsilon": 1e-5}
        clip = self.config.first("clip_qkv")
        return metadata if clip is None else metadata | {"attention.clamp_kqv": float(clip)}


class Olmo2(Conversion):
    """OLMo 2; also OLMo 3, with sliding windows in three of four layers, which some checkpoints call OLMo 2."""

    architecture = "olmo2"
    pre_tokenizers = ["dbrx", "olmo"]

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        if self.config.first("sliding_window") is None:
            return metadata
        layers = sliding_layers(self.config) or [(i + 1) % 4 != 0 for i in range(self.n_layer)]
        return metadata | {
            "attention.sliding_window": self.config.need("sliding_window"),
            "attention.sliding_window_pattern": layers,
        }


class Olmo3(Olmo2):
    required = ("rope_theta",)


class Olmoe(Conversion):
    """OLMo with experts."""

    architecture = "olmoe"
    needed = {"norm_topk_prob": False, "clip_qkv": None}
    pre_tokenizers = ["olmo"]
    defaults = {"attention.layer_norm_rms_epsilon": 1e-5}


class OlmoHybrid(Conversion):
    """OLMo Hybrid: gated delta nets with a matrix for each of their inputs."""

    architecture = "olmo-hybrid"
    inner_eps = 1e-6
    named_as = "qwen35"
    pre_tokenizers = ["dbrx", "olmo"]
    integers = {
        "vocab_size": "vocab_size",
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
    }
    flags = {"ssm.negative_eigenvalues": "linear_allow_neg_eigval"}
    renames = {r"\.dt_bias$": ".dt_proj.bias"}
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "linear_attn.a_proj": "ssm_alpha", "linear_attn.b_proj": "ssm_beta", "linear_attn.g_proj": "attn_gate",
        "linear_attn.qkv_proj": "attn_qkv", "linear_attn.qkv_conv1d": "ssm_conv1d", "linear_attn.o_norm": "ssm_norm",
        "linear_attn.o_proj": "ssm_out", "attention_layer_norm": "attn_norm", "feedforward_layer_norm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    })  # fmt: skip
    changes = {".A_log": decay, "conv1d.weight": LazyTensor.squeeze}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | {
            "ssm.inner_size": c.need("linear_value_head_dim") * c.need("linear_num_value_heads"),
            "attention.recurrent_layers": [kind == "linear_attention" for kind in c["layer_types"]],
            "rope.dimension_count": self.head_dim if c.whole_rope.get("rope_theta") else 0,
        }

    def checkpoint(self) -> dict[str, LazyTensor]:
        """Return the tensors with those of queries, keys and values joined."""
        tensors = super().checkpoint()
        for first in [name for name in tensors if "linear_attn.q_" in name]:
            names = [first.replace(".q_", f".{part}_") for part in "qkv"]
            if missing := [name for name in names if name not in tensors]:
                raise ConvertError(f"{self.folder.path}: tensor {missing[0]!r} is missing")
            tensors[first.replace(".q_", ".qkv_")] = concatenate([tensors.pop(name) for name in names])
        return tensors

    def rename(self, name: str) -> str | None:
        """Return a name that tells the norms of the two kinds of layers apart."""
        kinds, i = self.config["layer_types"], layer_of(name)
        is_whole = 0 <= i < len(kinds) and kinds[i] == "full_attention"
        names = "post_attention_layernorm", "feedforward_layer_norm"
        return super().rename(name.replace(*(names[::-1] if is_whole else names)))


class FlexOlmo(Olmo2):
    """OLMo 2 with experts."""

    architecture = "flexolmo"
    named_as = "olmo2"
    flags = {"expert_weights_norm": "norm_topk_prob"}
    more_names = {
        "model.layers.{}.mlp.gate": "blk.{}.ffn_gate_inp",
        **{
            f"model.layers.{{}}.mlp.experts.{part}_proj": f"blk.{{}}.ffn_{part}_exps" for part in ("gate", "up", "down")
        },
    }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from packed_experts(self, name, tensor)
