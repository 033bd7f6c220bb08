"""DeepSeek 1 to 3, and models with their layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pumice.plugin.convert import (
    MOST_LAYERS,
    SIGMOID,
    Conversion,
    Folder,
    HFConfig,
    LazyTensor,
    layer_of,
    leading_dense_layers,
)
from pumice_architectures.conversions.qwen import packed_experts

INDEXER = {  # hyperparameters of the indexer, which selects the attended positions
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk",
}


def refuse_mscale(config: HFConfig) -> None:
    """Raise ConvertError if YaRN scales attention, which a graph of latent attention does not have."""
    if config.whole_rope.get("mscale_all_dim"):
        raise config.unsupported(config.rope_key, "'mscale_all_dim' 0")


class DeepSeek(Conversion):
    """DeepSeek 1 with experts."""

    architecture = "deepseek"
    vocabularies = ["sentencepiece", "bpe"]
    pre_tokenizers = ["deepseek-llm"]
    integers = {
        "vocab_size": "vocab_size",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_shared_count": "n_shared_experts",
    }
    constants = {"rope.scaling.type": "none", "expert_weights_scale": 1.0}
    computed = {"rope.dimension_count": lambda self: self.head_dim}
    interleaves = True


class DeepSeek2(Conversion):
    """Latent attention (MLA): the cache holds one head, the compressed keys and values."""

    architecture = "deepseek2"
    inner_eps: float | None = 1e-6
    needed = {"rope_interleave": True}
    required_of_experts: tuple[str, ...] = ("n_shared_experts",)
    drops_tied_output = True
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["deepseek-v3", "deepseek-llm"]
    dropped: tuple[str, ...] = ("model.sam_model", "model.qwen2_model")
    integers = {
        "vocab_size": "vocab_size",
        "attention.q_lora_rank": "q_lora_rank",
        "expert_feed_forward_length": ("moe_intermediate_size", "intermediate_size"),
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    defaults = {"attention.layer_norm_rms_epsilon": 1e-6}

    without: tuple[str, ...] = ("rope.scaling.attn_factor",)  # the graph derives it from mscale_all_dim
    mscales: tuple[float, ...] = ()
    """Values of YaRN's ``mscale`` that the graph has; any if empty."""

    def check_config(self) -> None:
        super().check_config()
        rope = self.config.whole_rope
        if rope.get("rope_type") == "yarn" and not self.has_magnitude(rope):
            expected = "YaRN with 'mscale', 'mscale_all_dim' and 'attention_factor' that the architecture has"
            raise self.config.unsupported(self.config.rope_key, expected)

    def has_magnitude(self, rope: dict[str, Any]) -> bool:
        """Return True if the graph scales attention as YaRN's settings do: both scales are equal."""
        mscale = rope.get("mscale")
        is_known = bool(mscale) and (not self.mscales or mscale in self.mscales)
        return is_known and mscale == rope.get("mscale_all_dim") and rope.get("attention_factor") is None

    def metadata(self) -> dict[str, Any]:
        c = self.config
        rank, n_rot = c.need("kv_lora_rank"), c.need("qk_rope_head_dim")
        metadata = super().metadata() | {
            "attention.head_count_kv": 1,
            "attention.kv_lora_rank": rank,
            "attention.key_length": rank + n_rot,
            "attention.value_length": rank,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "attention.value_length_mla": c.need("v_head_dim"),
            "rope.dimension_count": n_rot,
        }
        metadata |= experts_metadata(c, self.n_layer)
        if c.rope.get("mscale_all_dim") is not None:
            metadata["rope.scaling.yarn_log_multiplier"] = 0.1 * float(c.rope["mscale_all_dim"])
        return metadata

    def rename(self, name: str) -> str | None:
        drafts = layer_of(name) >= self.n_layer + self.n_draft
        return None if drafts else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor)
        else:
            yield from packed_experts(self, name, tensor)


class DeepSeek3(DeepSeek2):
    """DeepSeek 3: sigmoid routing, which some configurations omit."""

    needed = DeepSeek2.needed | {"scoring_func": "sigmoid"}
    required_of_experts = ("norm_topk_prob", "routed_scaling_factor", "n_shared_experts")
    defaults = DeepSeek2.defaults | {"expert_gating_func": SIGMOID}


def experts_metadata(config: HFConfig, n_layer: int) -> dict[str, Any]:
    """Return the metadata of experts; {} for a model of ``n_layer`` dense layers."""
    n_dense = 0 if config.first("n_routed_experts") is not None else n_layer
    metadata = {
        "leading_dense_block_count": config.first("first_k_dense_replace") or n_dense,
        "expert_shared_count": config.first("n_shared_experts") or 0,
    }
    return metadata | ({"expert_weights_norm": True} if config.first("norm_topk_prob") else {})


def leading_dense(config: HFConfig) -> dict[str, Any]:
    """Return the metadata of dense layers, which a configuration may list instead of counting them."""
    n_dense = leading_dense_layers(config)
    return {} if n_dense is None else {"leading_dense_block_count": n_dense}


def latent_parts(
    conversion: Conversion, name: str, tensor: LazyTensor, sizes: Sequence[int] = ()
) -> Iterator[tuple[str, LazyTensor]]:
    """Split the matrix that expands the cached latent into keys, transposed, and values, of ``sizes`` a head."""
    n_key, n_value = sizes or (conversion.config.need(size) for size in ("qk_nope_head_dim", "v_head_dim"))
    keys, values = tensor.reshape(-1, n_key + n_value, tensor.shape[-1]).split(n_key, n_value, axis=1)
    yield f"blk.{layer_of(name)}.attn_k_b.weight", keys.transpose(0, 2, 1)
    yield f"blk.{layer_of(name)}.attn_v_b.weight", values


class DeepSeek32(DeepSeek3):
    """DeepSeek 3.2: attention to positions that an indexer selects."""

    architecture = "deepseek32"
    mscales = (1.0,)
    named_as = "glm-dsa"
    n_draft_name = "num_nextn_predict_layers"
    integers = {**DeepSeek2.integers, **INDEXER}


class DeepSeekOCR(DeepSeek2):
    """The text model of DeepSeek-OCR: no latent attention."""

    architecture = "deepseek2-ocr"
    inner_eps = None

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = {"rope.freq_base": 10000.0} | Conversion.metadata(self) | experts_metadata(c, self.n_layer)
        metadata["rope.dimension_count"] = c.first("qk_rope_head_dim") or 0
        window = c.first("sliding_window_size", "sliding_window")
        return metadata | ({"attention.sliding_window": window} if window else {})

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.chat_template": "{% for m in messages %}{{m['content']}}{% endfor %}"}


class LongCatFlash(DeepSeek2):
    """LongCat-Flash: a layer of the checkpoint is two here; norms take the scales of what they normalize."""

    architecture = "longcat-flash"
    named_as = "deepseek2"
    required = ("rope_theta",)
    required_of_experts = ("routed_scaling_factor",)
    defaults = {"attention.layer_norm_rms_epsilon": 1e-5}
    dropped = ("model.mtp.",)
    integers = DeepSeek2.integers | {
        "feed_forward_length": "ffn_hidden_size",
        "expert_feed_forward_length": "expert_ffn_hidden_size",
        "expert_used_count": "moe_topk",
        "expert_idle_count": "zero_expert_num",
    }

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"leading_dense_block_count": 0, "expert_shared_count": 0}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_layer = 2 * self.config.need("num_layers", most=MOST_LAYERS // 2)

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        parts = (new_name or "").split(".")
        if new_name is None or not new_name.startswith("model.layers.") or len(parts) < 5 or not parts[2].isdecimal():
            return new_name
        half = int(parts.pop(4)) if parts[3] != "mlp" and parts[4].isdecimal() else 0
        parts[2:4] = str(2 * int(parts[2]) + half), parts[3].replace("mlps", "mlp")
        return ".".join(parts).replace(".mlp.router.classifier", ".mlp.gate").replace(".mlp.router.", ".mlp.gate.")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith((".experts.gate_proj.weight", ".experts.up_proj.weight")):
            tensor = tensor[: self.config.need("n_routed_experts")]  # idle experts may have matrices, too
        for part in ("q", "kv"):
            if name.endswith(f".{part}_a_layernorm.weight"):
                tensor = tensor * (self.config.need("hidden_size") / self.config.need(f"{part}_lora_rank")) ** 0.5
        yield from super().convert(name, tensor)


class AXK2(DeepSeek32):
    """A.X K2: norms have gates, and one matrix expands the compressed queries to queries and gates of heads."""

    architecture = "axk2"
    n_draft_name = ""
    integers = DeepSeek32.integers | {"norm_gate_rank": "gated_norm_rank"}
    more_names = {
        f"model.layers.{{}}.{norm}_layernorm.{part}": f"blk.{{}}.{own}_norm{suffix}"
        for norm, own in (("input", "attn"), ("post_attention", "ffn"))
        for part, suffix in (("norm", ""), ("W_down", "_gate_a"), ("W_up", "_gate_b"))
    }

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | leading_dense(self.config)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".q_b_proj.weight"):
            n_value = self.config.need("v_head_dim")
            n_key = self.config.need("qk_nope_head_dim") + self.config.need("qk_rope_head_dim")
            heads = tensor.reshape(-1, n_key + n_value, tensor.shape[-1])
            for part, own in zip(heads.split(n_key, n_value, axis=1), ("attn_q_b", "attn_gate"), strict=True):
                yield f"blk.{layer_of(name)}.{own}.weight", part.reshape(-1, tensor.shape[-1])
        else:
            yield from super().convert(name, tensor)


class AXK1(DeepSeek3):
    """A.X K1: a norm follows the experts; dense layers have one that is not used."""

    architecture = "axk1"
    named_as = "deepseek2"
    more_names = {
        "model.layers.{}.post_mlp_layernorm": "blk.{}.post_ffw_norm",
        "model.layers.{}.mlp.post_mlp_layernorm": "blk.{}.post_ffw_norm",
    }

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | leading_dense(self.config)

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        is_dense = layer_of(name) < self.metadata()["leading_dense_block_count"]
        return None if is_dense and "post_mlp_layernorm" in name else new_name
