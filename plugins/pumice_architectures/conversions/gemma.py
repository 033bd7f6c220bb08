"""Gemma 1 to 3. GGUF stores 1 + weight for norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, LazyTensor, in_layers

N_LAYERS_27B = (46, 62)  # of Gemma 2 and 3, which scale attention by the model's width per head
END_OF_TURN = 107  # token id, missing in the first files


class Gemma(Conversion):
    architecture = "gemma"
    hidden_act = "gelu_pytorch_tanh"
    vocabularies = ["sentencepiece", "fast_sentencepiece"]
    norm_offset = 1.0
    implied = {"rope.freq_base": 10000.0}

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        metadata.setdefault("attention.head_count_kv", metadata["attention.head_count"])
        return metadata

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.eot_token_id": END_OF_TURN, "tokenizer.ggml.add_space_prefix": False}

    def rename(self, name: str) -> str | None:
        tied = self.config.get("tie_word_embeddings") is not False
        return None if name == "lm_head.weight" and tied else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        shifted = self.norm_offset and name.endswith("norm.weight")
        yield from super().convert(name, tensor + self.norm_offset if shifted else tensor)


class Gemma2(Gemma):
    """Gemma 2, also that of MERaLiON-2: sliding windows, soft caps."""

    architecture = "gemma2"
    window_period = 2
    renames = {r"^text_decoder\.": ""}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | attention_scale(self) | {
            "attn_logit_softcapping": float(c.get("attn_logit_softcapping", 50.0) or 0.0),
            "final_logit_softcapping": float(c.get("final_logit_softcapping", 30.0) or 0.0),
            "attention.sliding_window": c.need("sliding_window"),
        }  # fmt: skip

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_space_prefix": False}


def attention_scale(conversion: Conversion) -> dict[str, Any]:
    """Return the scale of attention unless it follows from the width of a head."""
    width = conversion.config.first("query_pre_attn_scalar")
    is_usual = width in (None, conversion.head_dim) and conversion.n_layer not in N_LAYERS_27B
    return {} if is_usual else {"attention.scale": (width or conversion.head_dim) ** -0.5}


class Gemma3(Gemma2):
    """The text model of Gemma 3."""

    architecture = "gemma3"
    implied = {}
    needed = {"use_bidirectional_attention": False}
    window_period = 6
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
        metadata = Conversion.metadata(self) | attention_scale(self)
        if self.config.first("final_logit_softcapping"):
            metadata["final_logit_softcapping"] = float(self.config["final_logit_softcapping"])
        if self.config.first("sliding_window_pattern") != 1:
            metadata["attention.sliding_window"] = self.config.need("sliding_window")
        return metadata

    def n_vocab(self, stored: int) -> int:
        return self.config.n_vocab(self.N_VOCAB)

    def rename(self, name: str) -> str | None:
        return Conversion.rename(self, name)


class RecurrentGemma(Gemma):
    """RecurrentGemma: matrices of the recurrent units are for blocks of channels, one for each attention head."""

    architecture = "recurrent-gemma"
    named_as = "gemma"
    defaults = {"context_length": 8192}  # of the published models, which do not tell
    integers = {
        "attention.sliding_window": "attention_window_size",
        "ssm.conv_kernel": "conv1d_width",
        "ssm.group_count": "num_attention_heads",
        "vocab_size": "vocab_size",
    }
    numbers = {"final_logit_softcapping": "logits_soft_cap"}
    renames = {r"_gate_(weight|bias)$": r"_gate.\1"}
    more_names = {
        "model.final_norm": "output_norm",
        "model.layers.{}.temporal_pre_norm": "blk.{}.attn_norm",
        "model.layers.{}.channel_pre_norm": "blk.{}.ffn_norm",
        **{f"model.layers.{{}}.mlp_block.{part}_proj": f"blk.{{}}.ffn_{part}" for part in ("gate", "up", "down")},
        **{f"model.layers.{{}}.temporal_block.{part}_proj": f"blk.{{}}.attn_{part}" for part in "qkv"},
        **in_layers("model.layers.{}.temporal_block.", "blk.{}.", {
            "o_proj": "attn_output", "linear_y": "attn_gate", "linear_x": "ssm_in", "linear_out": "ssm_out",
            "conv_1d": "ssm_conv1d", "rg_lru.input_gate": "ssm_x", "rg_lru.recurrent_gate": "ssm_dt",
            "rg_lru.recurrent_param": "ssm_a",
        }),
    }  # fmt: skip
    changes = {
        "_gate.weight": lambda gate: gate.transpose(0, 2, 1),
        "recurrent_param": lambda rates: rates.map(lambda x: -8.0 * np.logaddexp(0.0, x)),
        "conv_1d.weight": LazyTensor.squeeze,
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        kinds, n_kv = c["block_types"], c.first("num_key_value_heads") or c.need("num_attention_heads")
        return Conversion.metadata(self) | {
            "attention.head_count_kv": [n_kv * (kinds[i % len(kinds)] == "attention") for i in range(self.n_layer)],
            "feed_forward_length": c.need("intermediate_size") // 2,
            "ssm.inner_size": c.need("lru_width", "hidden_size"),
            "rope.dimension_count": self.n_rot(0.5),
        }

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_space_prefix": False}


class VaultGemma(Gemma2):
    """VaultGemma: Gemma 2 without norms after the blocks."""

    architecture = "vaultgemma"
    named_as = "gemma2"
    more_names = {"model.layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm"}
