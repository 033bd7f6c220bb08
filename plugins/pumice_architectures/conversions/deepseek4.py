"""DeepSeek V4."""

from __future__ import annotations

from typing import Any, ClassVar

from pumice.plugin import GGMLType
from pumice.plugin.convert import (
    Conversion,
    Folder,
    HFConfig,
    LazyTensor,
    layer_of,
    mxfp4,
    q8_0,
    times_scales,
)
from pumice_architectures.conversions.deepseek import INDEXER

POOLS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
FP8_BLOCK = 128  # rows and columns that share a scale
MXFP4_BYTES = 16  # bytes of 32 numbers that share a scale

MATRICES = {
    "attn_norm": "attn_norm", "attn.wq_a": "attn_q_a", "attn.wq_b": "attn_q_b", "attn.q_norm": "attn_q_a_norm",
    "attn.wkv": "attn_kv", "attn.kv_norm": "attn_kv_a_norm", "attn.wo_a": "attn_output_a",
    "attn.wo_b": "attn_output_b", "attn.compressor.wkv": "attn_compressor_kv",
    "attn.compressor.wgate": "attn_compressor_gate", "attn.compressor.norm": "attn_compressor_norm",
    "attn.indexer.wq_b": "indexer.attn_q_b", "attn.indexer.weights_proj": "indexer.proj",
    "attn.indexer.compressor.wkv": "indexer_compressor_kv", "attn.indexer.compressor.wgate": "indexer_compressor_gate",
    "attn.indexer.compressor.norm": "indexer_compressor_norm", "ffn_norm": "ffn_norm", "ffn.gate": "ffn_gate_inp",
    "ffn.exp_probs": "exp_probs_b", "ffn.shared_experts.w1": "ffn_gate_shexp",
    "ffn.shared_experts.w2": "ffn_down_shexp", "ffn.shared_experts.w3": "ffn_up_shexp",
    "ffn.experts.w1": "ffn_gate_exps", "ffn.experts.w2": "ffn_down_exps", "ffn.experts.w3": "ffn_up_exps",
}  # fmt: skip
PLAIN = {  # tensor names without ``.weight``
    "attn.attn_sink": "attn_sinks", "attn.compressor.ape": "attn_compressor_ape",
    "attn.indexer.compressor.ape": "indexer_compressor_ape", "ffn.gate.tid2eid": "ffn_gate_tid2eid",
    **{f"hc_{block}_{part}": f"hc_{block}_{part}" for block in ("attn", "ffn") for part in ("fn", "base", "scale")},
}  # fmt: skip


class DeepSeek4(Conversion):
    """DeepSeek V4: tensors keep the checkpoint's types, except that 8-bit floats become Q8_0."""

    architecture = "deepseek4"
    needed = {"norm_topk_prob": True}
    required = ("rope_theta", "compress_rope_theta", "qk_rope_head_dim", "routed_scaling_factor")
    named_as = "deepseek2"
    pre_tokenizers = ["deepseek-v3"]
    keeps_types = True
    dropped: tuple[str, ...] = ("mtp.", "aligner.", "image_")
    renames = {
        r"ffn\.gate\.bias$": "ffn.exp_probs.bias",
        # Names in checkpoints of the transformers package.
        r"^model\.": "",
        r"^embed_tokens\.": "embed.",
        r"^lm_head\.": "head.",
        r"^hc_head\.hc_": "hc_head_",
        r"\.attn\.norm\.": ".attn.kv_norm.",
    }
    more_names = {
        "embed": "token_embd", "norm": "output_norm", "head": "output",
        **{f"hc_head_{part}": f"output_hc_{part}.weight" for part in ("fn", "base", "scale")},
        **{f"layers.{{}}.{old}": f"blk.{{}}.{new}" for old, new in MATRICES.items()},
        **{f"layers.{{}}.{old}": f"blk.{{}}.{new}.weight" for old, new in PLAIN.items()},
        "layers.{}.ffn.gate.bias_vl": "blk.{}.exp_probs_b_vl.bias",
    }  # fmt: skip
    integers = {
        "rope.dimension_count": "qk_rope_head_dim",
        "attention.q_lora_rank": "q_lora_rank",
        "attention.sliding_window": "sliding_window",
        "attention.output_group_count": "o_groups",
        "attention.output_lora_rank": "o_lora_rank",
        "attention.compress_ratios": "compress_ratios",
        **INDEXER,
        "expert_shared_count": "n_shared_experts",
        "hash_layer_count": "num_hash_layers",
        "hyper_connection.count": "hc_mult",
        "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
    }
    numbers = {
        "attention.compress_rope_freq_base": "compress_rope_theta",
        "expert_weights_scale": "routed_scaling_factor",
        "hyper_connection.epsilon": "hc_eps",
    }
    defaults = {"expert_weights_norm": True}
    changes = {"tid2eid": lambda ids: ids.integers(GGMLType.I32)}

    def check_config(self) -> None:
        self.config = as_released(self.config)
        super().check_config()

    def metadata(self) -> dict[str, Any]:
        limits = [float(self.config["swiglu_limit"])] * self.n_layer
        return super().metadata() | {"swiglu_clamp_exp": limits, "swiglu_clamp_shexp": limits} | self.ends()

    def ends(self) -> dict[str, Any]:
        """Return the tensors that enter the draft layers: all residual streams."""
        return {"embedding_length_out": self.config.need("hidden_size") * self.config.need("hc_mult")}

    def checkpoint(self) -> dict[str, LazyTensor]:
        tensors = self.folder.tensors
        scales = {name.removesuffix("scale"): tensor for name, tensor in tensors.items() if name.endswith(".scale")}
        weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(".scale")}
        for base, scale in scales.items():
            if (weight := f"{base}weight") in weights:
                weights[weight] = self.with_scales(weight, weights[weight], scale)
        return weights

    @staticmethod
    def with_scales(name: str, weight: LazyTensor, scale: LazyTensor) -> LazyTensor:
        """Keep the experts' 4-bit floats, and round other matrices' 8-bit floats to Q8_0."""
        if ".ffn.experts." in name:
            return mxfp4(weight.reshape(weight.shape[0], -1, MXFP4_BYTES), scale.exponents())
        return q8_0(times_scales(weight, scale, (FP8_BLOCK, FP8_BLOCK)))

    def rename(self, name: str) -> str | None:
        hashed = layer_of(name) < (self.config.first("num_hash_layers") or 0)
        return None if hashed and name.endswith("ffn.gate.bias") else super().rename(name)


def as_released(config: HFConfig) -> HFConfig:
    """Return the configuration with the released names for keys that the transformers package renames."""
    values: dict[str, Any] = {}
    rope, turned = config.first("rope_parameters") or {}, config.first("partial_rotary_factor")
    if isinstance(rope.get("compress"), dict):
        stretched, main = dict(rope["compress"]), rope.get("main") or {}
        is_plain = main.get("rope_type", "default") == "default"
        parts = [part.get("partial_rotary_factor", turned) for part in (main, stretched)]
        is_scaled = stretched.get("rope_type") == "yarn" and stretched.get("attention_factor") != 1.0
        if not is_plain or is_scaled or parts[0] != parts[1]:
            raise config.unsupported(
                "rope_parameters",
                "a 'main' of type 'default', a 'compress' with 'attention_factor' 1, and one 'partial_rotary_factor'",
            )
        turned = parts[0]
        if main.get("rope_theta"):
            values["rope_theta"] = main["rope_theta"]
        values["compress_rope_theta"] = stretched.pop("rope_theta")
        values |= {"rope_parameters": None, "rope_scaling": stretched}
    if "compress_ratios" not in config and config.first("layer_types"):
        values["compress_ratios"] = [POOLS[kind] for kind in config["layer_types"]]
    if "num_hash_layers" not in config and config.first("mlp_layer_types"):
        values["num_hash_layers"] = config["mlp_layer_types"].count("hash_moe")
    if turned is not None:
        values["qk_rope_head_dim"] = int(config.need("head_dim") * turned)
    return config | values


class DSpark4(DeepSeek4):
    """The draft layers of DeepSeek V4, which draft a block of tokens, as a separate model (DSpark)."""

    architecture = "dflash"
    is_draft = True
    dropped = ()
    OUTSIDE: ClassVar = ("main_proj.", "main_norm.", "markov_head.", "confidence_head.", "norm.", "hc_head_")
    more_names = DeepSeek4.more_names | {
        "main_proj": "fc", "main_norm": "enc.output_norm", "markov_head.markov_w1": "markov_w1",
        "markov_head.markov_w2": "markov_w2", "confidence_head.proj": "conf_proj",
    }  # fmt: skip

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_layer = 1 + max((layer_of(name) for name in folder.tensors if name.startswith("mtp.")), default=-1)
        zeros = {"compress_ratios": [0] * self.n_layer, "num_hash_layers": 0}
        self.config = self.config | zeros

    def ends(self) -> dict[str, Any]:
        c = self.config
        layers = [int(layer) + 1 for layer in c["dspark_target_layer_ids"]]
        return {"block_size": c.need("dspark_block_size"), "target_layers": layers}

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.mask_token_id": self.config.need("dspark_noise_token_id", least=0)}

    def rename(self, name: str) -> str | None:
        """Rename ``mtp.0.attn.wkv.weight`` to layer 0; tensors that exist once have no layer."""
        if not name.startswith("mtp.") or name.endswith(("bias_vl", "tid2eid")):
            return None
        layer, _, rest = name.removeprefix("mtp.").partition(".")
        return super().rename(rest if rest.startswith(self.OUTSIDE) else f"layers.{layer}.{rest}")
