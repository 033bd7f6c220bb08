"""Kimi Linear: delta attention in most layers, latent attention in the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor, in_layers, layer_of
from pumice_architectures.conversions.deepseek import latent_parts
from pumice_architectures.conversions.mamba import decay


class KimiLinear(Conversion):
    architecture = "kimi-linear"
    inner_eps: float | None = 1e-6
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["kimi-k2"]
    renames = {
        r"\.dt_bias$": ".dt_proj.bias",
        r"\.block_sparse_moe\.(gate|up|down)_proj\.": r".mlp.\1_proj.",  # of dense layers, as transformers stores them
    }
    required_of_experts = ("routed_scaling_factor",)
    integers = {
        "vocab_size": "vocab_size",
        "attention.q_lora_rank": ("q_lora_rank", "n_lora_q"),
        "expert_shared_count": "num_shared_experts",
        "leading_dense_block_count": "first_k_dense_replace",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    more_names = in_layers("model.layers.{}.block_sparse_moe.experts.", "blk.{}.", {
        "w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps",
    })  # fmt: skip
    changes = {".A_log": decay, "_conv1d.weight": lambda taps: taps.reshape(1, taps.shape[0], 1, taps.shape[-1])}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        linear = c["linear_attn_config"]
        whole = set(linear["full_attn_layers"])  # counted from 1
        rank, n_rot = c.need("kv_lora_rank", "n_lora_kv"), c.need("qk_rope_head_dim", "n_rot")
        return super().metadata() | {
            "attention.head_count_kv": [int(i + 1 in whole) for i in range(self.n_layer)],
            "ssm.conv_kernel": linear["short_conv_kernel_size"],
            "kda.head_dim": linear["head_dim"],
            "attention.kv_lora_rank": rank,
            "rope.dimension_count": n_rot,
            "attention.key_length": rank + n_rot,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "attention.value_length_mla": c.need("v_head_dim"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor)
        else:
            yield from super().convert(name, tensor)


class KimiK3(KimiLinear):
    """The text model of Kimi K3: residuals from all earlier layers, narrow experts, gated latent attention."""

    architecture = "kimi-k3"
    inner_eps = None
    hidden_act = "situ"
    named_as = "kimi-linear"
    dropped = ("vision_tower.", "mm_projector.")
    more_names = KimiLinear.more_names | in_layers("model.layers.{}.block_sparse_moe.routed_expert_", "blk.{}.", {
        "down_proj": "ffn_routed_down", "up_proj": "ffn_routed_up", "norm": "ffn_routed_norm",
    })  # fmt: skip
    integers = KimiLinear.integers | {
        "expert_latent_length": "routed_expert_hidden_size",
        "attn_res.block_size": "attn_res_block_size",
    }
    numbers = KimiLinear.numbers | {
        "activation.situ_beta": "activation_situ_beta",
        "activation.situ_linear_beta": "activation_situ_linear_beta",
    }
    flags = {"expert_weights_norm": "moe_renormalize"}
    # Norm weights and projections that are only used as their product.
    SCORES = {"self_attention_res": "attn_res_score", "mlp_res": "ffn_res_score", "output_attn_res": "output_res_score"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata() | {"attention.value_length": c.need("kv_lora_rank")}
        bound = c["linear_attn_config"].get("gate_lower_bound")
        return metadata | ({} if bound is None else {"kda.gate_lower_bound": float(bound)})

    def other_metadata(self) -> dict[str, Any]:
        """Add the end-of-turn token, since the tokenizer only names the end of a text."""
        end = self.config.first("eos_token_id")
        return {"tokenizer.ggml.eos_token_id": end} if isinstance(end, int) else {}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        score = next((new for part, new in self.SCORES.items() if f"{part}_" in name), "")
        whole = self.config["linear_attn_config"]["full_attn_layers"]
        if score and name.endswith("_norm.weight"):
            return
        if score:
            layer = layer_of(name)
            yield f"blk.{layer}.{score}.weight" if layer >= 0 else f"{score}.weight", self._times_norm(name, tensor)
        elif name.endswith(".self_attn.g_proj.weight"):
            kind = "attn_gate" if layer_of(name) + 1 in whole else "ssm_g"
            yield f"blk.{layer_of(name)}.{kind}.weight", tensor
        elif name.endswith(".A_log"):
            n_head = self.config.need("num_attention_heads")
            yield self.names(name), tensor.reshape(-1)[:n_head]
        else:
            yield from super().convert(name, tensor)

    def _times_norm(self, name: str, projection: LazyTensor) -> LazyTensor:
        norm_name = name.replace("_proj.weight", "_norm.weight")
        norm = next((tensor for stored, tensor in self.folder.tensors.items() if stored.endswith(norm_name)), None)
        if norm is None:
            raise ConvertError(f"{self.folder.path}: tensor {norm_name!r} is missing")
        return projection.map(lambda x: x.reshape(-1) * norm.read().reshape(-1), (projection.size,))
