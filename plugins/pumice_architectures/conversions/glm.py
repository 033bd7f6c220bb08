"""GLM, all generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import KEYS, QUERIES, SIGMOID, Conversion, LazyTensor, concatenate
from pumice_architectures.conversions.deepseek import INDEXER, DeepSeek3

END, USER = "<|endoftext|>", "<|user|>"
SPECIAL = {"eos": END, "eot": USER, "unknown": END, "bos": END}
SPECIAL_MOE = {"bos": "[gMASK]", "eot": USER, "unknown": END, "eom": "<|observation|>"}


class ChatGLM(Conversion):
    """ChatGLM 2 and 3, and early GLM 4: queries, keys and values in one matrix."""

    architecture = "chatglm"
    vocabularies = ["bpe", "sentencepiece"]
    pre_tokenizers = ["chatglm-bpe"]
    special_tokens = {"eos": END, "eot": USER, "unknown": END}
    renames = {r"^transformer\.": ""}
    unused = (".rotary_pos_emb.inv_freq",)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size", "n_embed")
        n_head = c.need("n_head", "num_attention_heads")
        head_dim = c.first("attention_dim") or n_embd // n_head
        return {
            "context_length": c.first("seq_length") or n_embd,
            "embedding_length": n_embd,
            "feed_forward_length": c.first("ffn_hidden_size", "intermediate_size") or 4 * n_embd,
            "block_count": self.n_layer,
            "attention.head_count": n_head,
            "attention.head_count_kv": c.first("multi_query_group_num", "num_key_value_heads") or n_head,
            "attention.layer_norm_rms_epsilon": float(c.first("layernorm_epsilon", "rms_norm_eps") or 1e-5),
            "rope.dimension_count": int(head_dim * float(c.whole_rope.get("partial_rotary_factor", 0.5))),
            "rope.freq_base": float(c.whole_rope.get("rope_theta", 10000.0)) * (c.first("rope_ratio") or 1),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_bos_token": False}


class Glm(ChatGLM):
    """Early GLM 4 as transformers stores it."""

    required = ("rms_norm_eps",)


class GLM4(Conversion):
    """GLM 4; the multimodal model uses M-RoPE, whose pairs are halves of a head."""

    architecture = "glm4"
    pre_tokenizers = ["glm4", "chatglm-bpe"]
    special_tokens = SPECIAL
    computed = {"rope.dimension_count": lambda self: self.n_rot(self.turned)}

    @property
    def turned(self) -> float:
        """The rotated part of a head, if the checkpoint does not say it."""
        return 0.5

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "mrope_section" in self.config.rope and name.endswith(QUERIES + KEYS):
            tensor = self._in_halves(tensor)
        yield from super().convert(name, tensor)

    def _in_halves(self, tensor: LazyTensor) -> LazyTensor:
        n_rot = self.n_rot(self.turned)
        heads = tensor.reshape(-1, self.head_dim, *tensor.shape[1:])
        parts = (heads[:, :n_rot:2], heads[:, 1:n_rot:2], heads[:, n_rot:])
        return concatenate([part for part in parts if part.shape[1]], axis=1).reshape(*tensor.shape)


class GLMOCR(GLM4):
    """The text model of GLM-OCR, with a draft layer."""

    n_draft_name = "num_nextn_predict_layers"

    @property
    def turned(self) -> float:
        return 1.0 if "mrope_section" in self.config.rope else super().turned


class GLM4MoE(Conversion):
    """GLM 4.5 and later: experts, draft layers."""

    architecture = "glm4moe"
    required: tuple[str, ...] = ("norm_topk_prob",)
    pre_tokenizers = ["glm4", "chatglm-bpe"]
    special_tokens = SPECIAL_MOE
    n_draft_name = "num_nextn_predict_layers"
    integers = {
        "expert_count": "n_routed_experts",
        "expert_shared_count": "n_shared_experts",
        "leading_dense_block_count": "first_k_dense_replace",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    flags = {"expert_weights_norm": "norm_topk_prob"}
    constants = {"expert_gating_func": SIGMOID}
    computed = {"rope.dimension_count": lambda self: self.n_rot(self.turned)}

    @property
    def turned(self) -> float:
        """The rotated part of a head, if the checkpoint does not say it."""
        return 0.5

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name == "model.embed_tokens.weight":
            yield "token_embd.weight", tensor
        else:
            yield from super().convert(name, tensor)


class SolarOpen(GLM4MoE):
    required = ("norm_topk_prob", "rope_theta")
    turned = 1.0
    pre_tokenizers = ["solar-open"]
    special_tokens = {"eos": END, "eot": END, "unknown": "<unk>", "bos": "<|startoftext|>"}


class GLM4MoELite(DeepSeek3):
    """GLM 4.7 Flash: the architecture of DeepSeek 2."""

    defaults = DeepSeek3.defaults | {"attention.layer_norm_rms_epsilon": 1e-5}
    pre_tokenizers = ["glm4", "chatglm-bpe"]
    special_tokens = SPECIAL_MOE
    n_draft_name = "num_nextn_predict_layers"


class GLMDSA(GLM4MoELite):
    """GLM 5: attention to positions that an indexer selects."""

    architecture = "glm-dsa"
    integers = {**DeepSeek3.integers, **INDEXER}

    def has_magnitude(self, rope: dict[str, Any]) -> bool:
        return False

    def metadata(self) -> dict[str, Any]:
        c = self.config
        part = float(c.whole_rope.get("partial_rotary_factor", 1.0))
        metadata = super().metadata() | {"rope.dimension_count": int(c.need("qk_rope_head_dim") * part)}
        kinds = c.first("indexer_types")
        return metadata | ({"attention.indexer.types": [kind == "full" for kind in kinds]} if kinds else {})
