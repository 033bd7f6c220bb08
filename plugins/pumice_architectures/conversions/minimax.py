"""MiniMax."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import numpy as np

from pumice.plugin.convert import FLOAT32, SIGMOID, Conversion, ConvertError, LazyTensor, number


class MiniMax01(Conversion):
    """MiniMax Text 01 and M1: linear attention in most layers."""

    architecture = "minimax-01"
    named_as = "minimax-m2"
    pre_tokenizers = ["minimax-m2"]
    integers = {"rope.dimension_count": "rotary_dim"}
    more_names = {
        "model.layers.{}.self_attn.qkv_proj": "blk.{}.attn_qkv",
        "model.layers.{}.self_attn.out_proj": "blk.{}.attn_output",
        "model.layers.{}.self_attn.output_gate": "blk.{}.attn_gate",
        "model.layers.{}.self_attn.norm": "blk.{}.attn_norm_2",
    }
    KINDS = ("full_attention", "linear_attention", "mlp")

    def metadata(self) -> dict[str, Any]:
        c = self.config
        alphas = {number(c, f"layernorm_{kind}_alpha") for kind in self.KINDS}
        if len(alphas) > 1 or any(number(c, f"layernorm_{kind}_beta") != 1 for kind in self.KINDS):
            raise ConvertError(f"{c.path}: 'layernorm_*_alpha' must be equal and 'layernorm_*_beta' must be 1")
        return super().metadata() | {"residual_scale": alphas.pop()}

    def other_metadata(self) -> dict[str, Any]:
        """Suppress tokens without meaning: rows of zeros behind the vocabulary."""
        vocab = self.folder.json("tokenizer.json")["model"]["vocab"]
        embeddings = self.folder.tensors["model.embed_tokens.weight"]
        zeros = np.flatnonzero(~embeddings[len(vocab) :].read().any(axis=1)) + len(vocab)
        return {"tokenizer.ggml.suppress_tokens": zeros.tolist()} if len(zeros) else {}


class MiniMaxM2(Conversion):
    architecture = "minimax-m2"
    pre_tokenizers = ["minimax-m2"]
    integers = {"expert_feed_forward_length": "intermediate_size", "rope.dimension_count": "rotary_dim"}
    defaults = {"expert_gating_func": SIGMOID}


class MiniMaxM3(MiniMaxM2):
    """The text model of MiniMax M3: attention to blocks of tokens that an indexer selects."""

    architecture = "minimax-m3"
    named_as = "minimax-m2"
    float32 = FLOAT32 | {f"indexer.{part}" for part in ("q_proj", "k_proj")}
    more_names = {
        **{
            f"model.layers.{{}}.block_sparse_moe.shared_experts.{part}_proj": f"blk.{{}}.ffn_{part}_shexp"
            for part in ("gate", "up", "down")
        },
        "model.layers.{}.self_attn.index_q_proj": "blk.{}.indexer.q_proj",
        "model.layers.{}.self_attn.index_k_proj": "blk.{}.indexer.k_proj",
        "model.layers.{}.self_attn.index_q_norm": "blk.{}.indexer.q_norm",
        "model.layers.{}.self_attn.index_k_norm": "blk.{}.indexer.k_norm",
    }
    integers = MiniMaxM2.integers | {"expert_shared_count": "n_shared_experts"}
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    constants = {"expert_weights_norm": True}
    SPARSE = {
        "head_count": "sparse_num_index_heads",
        "key_length": "sparse_index_dim",
        "top_k": "sparse_topk_blocks",
        "block_size": "sparse_block_size",
        "local_blocks": "sparse_local_block",
    }

    def metadata(self) -> dict[str, Any]:
        sparse = self.config["sparse_attention_config"]
        dense = takewhile(lambda frequency: frequency == 0, self.config["moe_layer_freq"])
        return super().metadata() | {
            **{f"attention.indexer.{key}": int(sparse[name]) for key, name in self.SPARSE.items()},
            "leading_dense_block_count": len(list(dense)),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, tensor + 1.0 if name.endswith("norm.weight") else tensor)
