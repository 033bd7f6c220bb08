"""The text models of Mistral 3 and 4; older Mistral models are Llamas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, Folder, LazyTensor, layer_of, leading_dense_layers
from pumice_architectures.conversions.deepseek import INDEXER, DeepSeek2, latent_parts
from pumice_architectures.conversions.llama import Mistral


class Mistral4(DeepSeek2):
    """Mistral Small 4: the architecture of DeepSeek 2."""

    architecture = "mistral4"
    mscales = (1.0,)
    vocabularies = ["bpe", "tekken"]
    pre_tokenizers = ["tekken"]

    def metadata(self) -> dict[str, Any]:
        rope = self.config.whole_rope
        beta, length = rope.get("llama_4_scaling_beta"), rope.get("original_max_position_embeddings")
        metadata = super().metadata()
        if beta is not None and length is not None:
            metadata |= {"attention.temperature_scale": float(beta), "attention.temperature_length": int(length)}
        return metadata


class MistralLarge4(DeepSeek2):
    """The text model of Mistral Large 4; factors of rotary frequencies are learned."""

    architecture = "mistral-large4"
    inner_eps = None
    named_as = "glm-dsa"
    vocabularies = ["bpe", "tekken"]
    pre_tokenizers = ["tekken"]
    dropped = ("vision_encoder.", "vision_language_adapter.", "patch_merger.", "pre_mm_projector_norm.", "mtp_dspark.")
    integers = DeepSeek2.integers | INDEXER | {"attention.kv_source_layers": "kv_source_layers"}
    constants = {"expert_weights_norm": True}
    renames = {r"^layers\.": "model.layers.", r"ssmax_scaling\.s$": "ssmax.weight", r"ssmax_scaling\.b$": "ssmax.bias"}
    more_names = {
        "tok_embeddings": "token_embd",
        "norm": "output_norm",
        "lerope.alpha": "rope_freqs.weight",
        "model.layers.{}.attention_norm": "blk.{}.attn_norm",
        "model.layers.{}.ffn_norm": "blk.{}.ffn_norm",
        "model.layers.{}.attention.wq": "blk.{}.attn_q",
        "model.layers.{}.attention.wo": "blk.{}.attn_output",
        "model.layers.{}.attention.wkv_a_with_mqa": "blk.{}.attn_kv_a_mqa",
        "model.layers.{}.attention.kv_a_norm": "blk.{}.attn_kv_a_norm",
        "model.layers.{}.attention.ssmax": "blk.{}.attn_scale",
        "model.layers.{}.attention.indexer.ssmax": "blk.{}.indexer.scale",
        "model.layers.{}.attention.indexer.q_input_norm": "blk.{}.indexer.q_norm",
        "model.layers.{}.attention.indexer.k_norm": "blk.{}.indexer.k_norm",
        "model.layers.{}.attention.indexer.wq_b": "blk.{}.indexer.attn_q_b",
        "model.layers.{}.attention.indexer.wk": "blk.{}.indexer.attn_k",
        "model.layers.{}.attention.indexer.weights_proj": "blk.{}.indexer.proj",
        "model.layers.{}.gate": "blk.{}.ffn_gate_inp",
        **{
            f"model.layers.{{}}.{block}.{part}": f"blk.{{}}.ffn_{own}{suffix}"
            for block, suffix in {"feed_forward": "", "shared_experts": "_shexp", "experts": "_exps"}.items()
            for part, own in {"w1": "gate", "w2": "down", "w3": "up"}.items()
        },
    }

    def has_magnitude(self, rope: dict[str, Any]) -> bool:
        return rope.get("attention_factor") == 1.0 and not rope.get("mscale_all_dim")

    def _has_positions(self, layer: int) -> bool:
        return bool(self.config["no_rope_layers"][layer])  # 1 for a layer with RoPE

    def metadata(self) -> dict[str, Any]:
        c = self.config
        if c.whole_rope.get("rope_type") not in ("default", "yarn"):
            raise c.unsupported(c.rope_key, "'rope_type' 'yarn'")
        return super().metadata() | {
            "attention.rope_pattern": [self._has_positions(i) for i in range(self.n_layer)],
            "attention.indexer.types": [int(kind == "full") for kind in c["indexer_types"]],
            "leading_dense_block_count": leading_dense_layers(c) or 0,
            "final_logit_softcapping": float(c.get("final_logit_softcapping", 30.0)),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c, layer = self.config, layer_of(name)
        if name.endswith(".wkv_b.weight"):
            n_key, n_value = c.need("qk_nope_head_dim"), c.need("v_head_dim")
            n_key += 0 if self._has_positions(layer) else c.need("qk_rope_head_dim")
            yield from latent_parts(self, name, tensor, (n_key, n_value))
        else:
            yield from super().convert(name, tensor.map(lambda x: np.exp(-x)) if name == "lerope.alpha" else tensor)


class Mistral3(Mistral):
    """Ministral 3, and Mistral 3 with images: attention temperature grows with the position."""

    architecture = "mistral3"

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        return Mistral4(folder) if folder.config.get("model_type") == "mistral4" else cls(folder)

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        rope = self.config.whole_rope
        if self.config.get("model_type") == "ministral3":
            for key, name in (
                ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
                ("attention.temperature_scale", "llama_4_scaling_beta"),
            ):
                if rope.get(name) is not None:
                    metadata[key] = float(rope[name])
            if (factor := metadata.get("rope.scaling.factor", 1.0)) > 1 and (scale := rope.get("mscale_all_dim")):
                # The graph divides by this part of the magnitude.
                magnitude = metadata.pop("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * float(scale) * math.log(factor))
                metadata |= {} if math.isclose(magnitude, 1.0) else {"rope.scaling.attn_factor": magnitude}
        return metadata
