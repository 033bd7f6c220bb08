"""Gemma 1 to 3. GGUF stores 1 + weight for norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor

END_OF_TURN = 107  # token id, missing in the first files


class Gemma(Conversion):
    architecture = "gemma"
    vocabularies = ["sentencepiece", "fast_sentencepiece"]
    norm_offset = 1.0

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        metadata.setdefault("attention.head_count_kv", metadata["attention.head_count"])
        return {key: value for key, value in metadata.items() if not key.startswith("rope.")}

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.eot_token_id": END_OF_TURN, "tokenizer.ggml.add_space_prefix": False}

    def rename(self, name: str) -> str | None:
        return None if name == "lm_head.weight" else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        shifted = self.norm_offset and name.endswith("norm.weight")
        yield from super().convert(name, tensor + self.norm_offset if shifted else tensor)


class Gemma2(Gemma):
    """Gemma 2, also that of MERaLiON-2: sliding windows, soft caps."""

    architecture = "gemma2"
    renames = {r"^text_decoder\.": ""}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "attn_logit_softcapping": float(self.config.first("attn_logit_softcapping") or 50.0),
            "final_logit_softcapping": float(self.config.first("final_logit_softcapping") or 30.0),
            "attention.sliding_window": self.config.need("sliding_window"),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_space_prefix": False}


class Gemma3(Gemma2):
    """The text model of Gemma 3."""

    architecture = "gemma3"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    defaults = {
        "context_length": 131072,
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1_000_000.0,
        "rope.freq_base_swa": 10_000.0,
    }
    N_VOCAB = 262208  # default; multimodal models omit it in config.json

    def metadata(self) -> dict[str, Any]:
        metadata = Conversion.metadata(self)
        if self.config.first("final_logit_softcapping"):
            metadata["final_logit_softcapping"] = float(self.config["final_logit_softcapping"])
        if self.config.first("sliding_window_pattern") != 1:
            metadata["attention.sliding_window"] = self.config.need("sliding_window")
        return metadata

    def n_vocab(self, stored: int) -> int:
        return self.config.n_vocab(self.N_VOCAB)

    def rename(self, name: str) -> str | None:
        return Conversion.rename(self, name)


class VaultGemma(Gemma2):
    """VaultGemma: Gemma 2 without norms after the blocks."""

    architecture = "vaultgemma"
    named_as = "gemma2"
    more_names = {"model.layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm"}
