"""dots3: latent attention of two sizes, with sliding windows and with an indexer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import SIGMOID, LazyTensor, layer_of
from pumice_architectures.conversions.deepseek import INDEXER, DeepSeek2, latent_parts


class Dots3(DeepSeek2):
    """The text model of dots3 note; layers with a window have their own heads and ranks."""

    architecture = "dots3note"
    inner_eps = None
    needed = DeepSeek2.needed | {"scoring_func": "sigmoid", "apply_mla_qkv_lora_rescale": True}
    required = ("rope_theta", "rms_norm_eps")
    required_of_experts = (*DeepSeek2.required_of_experts, "norm_topk_prob")
    named_as = "glm-dsa"
    pre_tokenizers = ["qwen2"]
    special_tokens = {"eot": "<|endofassistant|>"}
    dropped = (*DeepSeek2.dropped, "vision_encoder.", "audio_encoder.")
    integers = DeepSeek2.integers | {
        "attention.sliding_window": "sliding_window_size",
        "attention.kv_lora_rank_swa": "swa_kv_lora_rank",
        "attention.value_length_swa": "swa_kv_lora_rank",
        "attention.value_length_mla_swa": "swa_v_head_dim",
        **INDEXER,
    }
    defaults = DeepSeek2.defaults | {"expert_gating_func": SIGMOID}
    more_names = {
        "model.layers.{}.self_attn.g_proj": "blk.{}.attn_gate",
        "model.layers.{}.self_attn.k_rope_only_layernorm": "blk.{}.attn_k_norm",
        "model.layers.{}.embed_tokens": "blk.{}.nextn.embed_tokens",
    }
    SIZES = ("qk_nope_head_dim", "v_head_dim")
    DRAFT = "model.mtp.embed_tokens.weight"

    @property
    def n_draft(self) -> int:
        return int(self.DRAFT in self.folder.tensors)

    def _slides(self, layer: int) -> bool:
        return layer >= self.n_layer or self.config["layer_types"][layer] == "sliding_attention"

    def _size(self, layer: int, name: str) -> int:
        return self.config.need(f"swa_{name}" if self._slides(layer) else name)

    def metadata(self) -> dict[str, Any]:
        c = self.config
        for name in ("q_lora_rank", "qk_rope_head_dim"):
            c.expect(f"swa_{name}", c.first(name))
        slides = [self._slides(i) for i in range(self.n_layer)]
        n_rot = c.need("qk_rope_head_dim")
        n_layer = self.n_layer + self.n_draft
        metadata = super().metadata() | {
            "attention.head_count": [self._size(i, "num_attention_heads") for i in range(n_layer)],
            "attention.sliding_window_pattern": slides,
            "attention.key_length_swa": c.need("swa_kv_lora_rank") + n_rot,
            "attention.key_length_mla_swa": c.need("swa_qk_nope_head_dim") + n_rot,
            "attention.indexer.types": [not slide for slide in slides],
        }
        return metadata | ({"nextn_predict_layers": self.n_draft} if self.n_draft else {})

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return f"model.layers.{self.n_layer}.embed_tokens.weight" if new_name == self.DRAFT else new_name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        layer = layer_of(name)
        for end, rank in (("q_a_layernorm.weight", "q_lora_rank"), ("kv_a_layernorm.weight", "kv_lora_rank")):
            if name.endswith(end):  # which takes the scale of what it normalizes
                tensor = tensor * (self.config.need("hidden_size") / self._size(layer, rank)) ** 0.5
        if name.endswith("kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor, [self._size(layer, size) for size in self.SIZES])
        else:
            yield from super().convert(name, tensor)
