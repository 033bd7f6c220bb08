"""Families with Llama's layout and sliding windows, or with other small changes of Llama's layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor, concatenate, in_layers, sliding_layers
from pumice_architectures.conversions.rope_factors import llama3_factors


class Ministral(Conversion):
    """Ministral 8B."""

    architecture = "ministral"
    named_as = "llama"
    vocabularies = ["tekken", "sentencepiece", "fast_sentencepiece", "bpe"]
    pre_tokenizers = ["tekken", "llama-bpe"]
    integers = {"vocab_size": "vocab_size"}

    def metadata(self) -> dict[str, Any]:
        window = self.config.first("sliding_window") or 0
        layers = sliding_layers(self.config) or [window > 0] * self.n_layer
        own = {"attention.sliding_window": window, "attention.sliding_window_pattern": layers}
        return super().metadata() | own | {"rope.dimension_count": self.head_dim}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from llama3_factors(self.config.whole_rope, self.head_dim)


class CWM(Ministral):
    """CWM, Meta's code world model."""

    architecture = "cwm"
    required = ("layer_types",)


class Helium(Conversion):
    """Helium: a Llama whose checkpoints have queries and keys in pairs, as GGUF has them."""

    architecture = "llama"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {"vocab_size": "vocab_size", "rope.dimension_count": "head_dim"}


class NanoChat(Conversion):
    """nanochat. RoPE turns the other way there, so halves of queries and keys change places."""

    architecture = "nanochat"
    hidden_act = "relu2"
    needed = {"attention_bias": False}
    named_as = "llama"
    pre_tokenizers = ["gpt-4o", "llama-bpe"]
    integers = {"vocab_size": "vocab_size"}
    numbers = {"final_logit_softcapping": "final_logit_softcapping"}
    more_names = {"model.layers.{}.mlp.fc1": "blk.{}.ffn_up", "model.layers.{}.mlp.fc2": "blk.{}.ffn_down"}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith((".q_proj.weight", ".k_proj.weight")):
            n = self.head_dim // 2
            heads = tensor.reshape(-1, 2, n, tensor.shape[-1])
            tensor = heads.map(lambda x: x[:, ::-1], heads.shape).reshape(*tensor.shape)
        yield from super().convert(name, tensor)


class DiffLlama(Conversion):
    """DiffLlama: the value of a key has those of two heads; the factor of the second attention is computed here."""

    architecture = "diffllama"
    named_as = "llama"
    unused = (".lambda_",)
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {"vocab_size": "vocab_size"}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"attention.key_length": self.head_dim, "attention.value_length": 2 * self.head_dim}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        for i in range(self.n_layer):
            prefix, first = f"model.layers.{i}.self_attn.lambda_", 0.8 - 0.6 * math.exp(-0.3 * i)
            q1, k1, q2, k2 = (self._values(prefix + part) for part in ("q1", "k1", "q2", "k2"))
            factor = np.exp((q1 * k1).sum()) - np.exp((q2 * k2).sum()) + first
            yield f"blk.{i}.attn_lambda.weight", LazyTensor.of(np.array([factor], np.float32))
            yield f"blk.{i}.attn_sub_norm.weight", LazyTensor.of(np.full(2 * self.head_dim, 1 - first, np.float32))

    def _values(self, name: str) -> np.ndarray:
        if name not in self.folder.tensors:
            raise ConvertError(f"{self.folder.path}: tensor {name!r} is missing")
        return self.folder.tensors[name].read().astype(np.float64)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".v_proj.weight"):
            width = tensor.shape[-1]
            heads = [half.reshape(-1, self.head_dim, width) for half in tensor.halves()]
            both = concatenate(heads, axis=1).reshape(-1, width)
            tensor = concatenate([both, both])
        yield from super().convert(name, tensor)


class ModernBertDecoder(Conversion):
    """ModernBERT as a causal decoder; a window in the configuration has both halves of an encoder's."""

    architecture = "modern-bert-decoder"
    hidden_act = "gelu"
    named_as = "modern-bert"
    needed = {"classifier_activation": "gelu"}
    pre_tokenizers = ["gpt-2"]
    integers = {"vocab_size": "vocab_size"}
    numbers = {"attention.layer_norm_epsilon": "norm_eps"}
    more_names = {
        "model.embeddings.tok_embeddings": "token_embd",
        "model.embeddings.norm": "token_embd_norm",
        "model.final_norm": "output_norm",
        "lm_head.dense": "output_dense",
        "lm_head.norm": "output_dense_norm",
        "decoder": "output",
        **in_layers("model.layers.{}.", "blk.{}.", {
            "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v", "attn.Wo": "attn_output",
            "attn_norm": "attn_norm", "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down",
        }),
    }  # fmt: skip
    computed = {
        "attention.sliding_window": lambda self: (
            self.config.first("sliding_window") or self.config.need("local_attention") // 2
        ),
        "attention.sliding_window_pattern": lambda self: sliding_layers(self.config),
    }
