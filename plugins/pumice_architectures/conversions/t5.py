"""T5: an encoder and a decoder with shared embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, number

SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


class T5(Conversion):
    """T5, mT5, umT5, FLAN-T5."""

    architecture = "t5"
    needed = {"relative_attention_max_distance": 128}
    vocabularies = ["unigram", "sentencepiece"]

    def check_config(self) -> None:
        super().check_config()
        c = self.config
        block = str(c.first("feed_forward_proj") or "relu")
        c.expect("is_gated_act", block.startswith("gated-"))
        activation, expected = str(c.first("dense_act_fn") or block), "gelu" if block.startswith("gated-") else "relu"
        if not activation.removeprefix("gated-").startswith(expected):
            raise c.unsupported("dense_act_fn", repr(expected))

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

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """Move the factor of hidden states before tied embeddings to the last norm; llama.cpp's converter drops it."""
        c = self.config
        scales = c.get("scale_decoder_outputs", c.get("tie_word_embeddings") is not False)
        if name == "decoder.final_layer_norm.weight" and scales and not c.model_class.startswith("MT5"):
            tensor = tensor * c.need("d_model") ** -0.5
        yield from super().convert(name, tensor)


class T5Encoder(T5):
    """The encoder of T5 alone."""

    architecture = "t5encoder"

    def _decoder(self) -> dict[str, Any]:
        return {}
