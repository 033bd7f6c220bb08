"""GLM 5 Next: delta attention, latent attention with an indexer, hyper-connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import FLOAT32, Conversion, LazyTensor
from pumice_architectures.conversions.deepseek import INDEXER, latent_parts
from pumice_architectures.conversions.glm import SPECIAL_MOE
from pumice_architectures.conversions.mamba import decay


class GLM5Next(Conversion):
    """The text model of GLM 5 Next."""

    architecture = "glm5-next"
    named_as = "kimi-linear"
    pre_tokenizers = ["glm4", "chatglm-bpe"]
    special_tokens = SPECIAL_MOE
    n_draft_name = "num_nextn_predict_layers"
    drops_tied_output = True
    without = ("attention.key_length", "attention.value_length")
    renames = {r"\.dt_bias$": ".dt_proj.bias"}
    integers = {
        "vocab_size": "vocab_size",
        "attention.q_lora_rank": "q_lora_rank",
        "attention.kv_lora_rank": "kv_lora_rank",
        **INDEXER,
        "attention.indexer.kpool": "index_kpool",
        "hyper_connection.count": "hc_mult",
        "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_shared_count": "n_shared_experts",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor", "hyper_connection.epsilon": "hc_eps"}
    flags = {"expert_weights_norm": "norm_topk_prob"}
    EPSILON = 1e-6  # epsilon of LayerNorm
    HYPER = tuple(f"hc_{part}_{kind}" for part in ("attn", "ffn") for kind in ("fn", "base", "scale"))
    float32 = FLOAT32 | {*HYPER, "indexer_compressor_ape", "indexer_compressor_gate"}
    more_names = {
        "model.layers.{}.self_attn.indexer.wk": "blk.{}.indexer.attn_k",
        "model.layers.{}.self_attn.indexer.wq_b": "blk.{}.indexer.attn_q_b",
        "model.layers.{}.self_attn.indexer.k_norm": "blk.{}.indexer.k_norm",
        "model.layers.{}.self_attn.indexer.weights_proj": "blk.{}.indexer.proj",
        **{f"model.layers.{{}}.{name}": f"blk.{{}}.{name}" for name in HYPER},
        **{
            f"model.layers.{{}}.self_attn.indexer.index_kpool_compress_{part}": f"blk.{{}}.indexer_compressor_{part}"
            for part in ("ape", "gate")
        },
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        linear = c["linear_attn_config"]
        kinds = c["layer_types"]
        rank, n_rot = c.need("kv_lora_rank"), c.need("qk_rope_head_dim", least=0)
        n = self.n_layer + self.n_draft
        tail = c.first("index_kpool_always_select_tail")
        metadata = super().metadata() | {
            "attention.head_count_kv": [int(kind != "linear_attention") for kind in kinds] + [1] * self.n_draft,
            "attention.layer_norm_epsilon": self.EPSILON,
            "ssm.conv_kernel": linear["short_conv_kernel_size"],
            "kda.head_dim": linear["head_dim"],
            "rope.dimension_count": n_rot,
            "attention.key_length": rank + n_rot,
            "attention.value_length": rank,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "attention.value_length_mla": c.need("v_head_dim"),
            "attention.indexer.kpool_select_tail": True if tail is None else bool(tail),
        }
        if (bound := linear.get("gate_lower_bound")) is not None:
            metadata["kda.gate_lower_bound"] = float(bound)
        if (limit := c.first("swiglu_limit")) is not None:
            metadata |= {"swiglu_clamp_exp": [float(limit)] * n, "swiglu_clamp_shexp": [float(limit)] * n}
        if (types := c.first("indexer_types")) is not None:
            metadata["attention.indexer.types"] = [kind == "full" for kind in types]
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor)
        elif name.endswith("_conv1d.weight"):
            yield self.names(name), tensor.reshape(1, tensor.shape[0], 1, tensor.shape[-1])
        elif name.endswith(".A_log"):
            yield self.names(name), decay(tensor.reshape(-1)[: self.config.need("num_attention_heads")])
        elif name.endswith((*self.HYPER, "_compress_ape", "_compress_gate")):
            yield self.names(f"{name}.weight"), tensor
        else:
            yield from super().convert(name, tensor)
