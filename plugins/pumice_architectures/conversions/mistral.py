"""The text models of Mistral 3 and 4; older Mistral models are Llamas."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import Conversion, Folder
from pumice_architectures.conversions.deepseek import DeepSeek2
from pumice_architectures.conversions.llama import Llama


class Mistral4(DeepSeek2):
    """Mistral Small 4: the architecture of DeepSeek 2."""

    architecture = "mistral4"
    vocabularies = ["bpe", "tekken"]
    pre_tokenizers = ["tekken"]

    def metadata(self) -> dict[str, Any]:
        rope = self.config.whole_rope
        beta, length = rope.get("llama_4_scaling_beta"), rope.get("original_max_position_embeddings")
        metadata = super().metadata()
        if beta is not None and length is not None:
            metadata |= {"attention.temperature_scale": float(beta), "attention.temperature_length": int(length)}
        return metadata


class Mistral3(Llama):
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
        return metadata
