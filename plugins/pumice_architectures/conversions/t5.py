"""T5: an encoder and a decoder with shared embeddings."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import Conversion, number

SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


class T5(Conversion):
    """T5, mT5, umT5, FLAN-T5."""

    architecture = "t5"
    vocabularies = ["unigram", "sentencepiece"]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = {
            "context_length": c.first("n_positions") or 512,
            "embedding_length": c.need("d_model"),
            "feed_forward_length": c.need("d_ff"),
            "block_count": self.n_layer,
            "attention.head_count": c.need("num_heads"),
            "attention.key_length": c.need("d_kv"),
            "attention.value_length": c.need("d_kv"),
            "attention.layer_norm_epsilon": number(c, "layer_norm_epsilon"),
            "attention.relative_buckets_count": c.need("relative_attention_num_buckets"),
            "attention.layer_norm_rms_epsilon": number(c, "layer_norm_epsilon"),
        }
        return metadata | self._decoder()

    def _decoder(self) -> dict[str, Any]:
        c = self.config
        metadata = {"decoder_start_token_id": c.need("decoder_start_token_id", least=0)}
        n_layer = c.first("num_decoder_layers")
        return metadata if n_layer is None else metadata | {"decoder_block_count": n_layer}

    def rename(self, name: str) -> str | None:
        if name in SHARED:
            stored = next(name_in_file for name_in_file in self.folder.tensors if name_in_file in SHARED)
            return SHARED[0] if name == stored else None
        return super().rename(name)


class T5Encoder(T5):
    """The encoder of T5 alone."""

    architecture = "t5encoder"

    def _decoder(self) -> dict[str, Any]:
        return {}
