"""MiniMax."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import numpy as np

from pumice.plugin.convert import (
    FLOAT32,
    SIGMOID,
    Conversion,
    ConvertError,
    LazyTensor,
    in_layers,
    leading_dense_layers,
    number,
)
from pumice_architectures.conversions.qwen import packed_experts

# Feed-forward blocks and experts of MiniMax M3, and the ends of their names.
BLOCKS = {"mlp": "", "block_sparse_moe.shared_experts": "_shexp", "block_sparse_moe.experts": "_exps"}


class MiniMax01(Conversion):
    """MiniMax Text 01 and M1: linear attention in most layers."""

    architecture = "minimax-01"
    named_as = "minimax-m2"
    pre_tokenizers = ["minimax-m2"]
    integers = {"rope.dimension_count": "rotary_dim"}
    more_names = in_layers("model.layers.{}.", "blk.{}.", {
        "self_attn.qkv_proj": "attn_qkv", "self_attn.out_proj": "attn_output", "self_attn.output_gate": "attn_gate",
        "self_attn.norm": "attn_norm_2",
    })  # fmt: skip
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
    needed = {"scoring_func": "sigmoid"}
    required = ("rope_theta",)
    pre_tokenizers = ["minimax-m2"]
    integers = {"expert_feed_forward_length": "intermediate_size"}
    computed = {"rope.dimension_count": lambda self: self.turned()}
    defaults = {"expert_gating_func": SIGMOID}

    def turned(self) -> int:
        """Return the values per head that RoPE rotates."""
        c = self.config
        is_part = "partial_rotary_factor" in c.whole_rope or c.first("rotary_dim") is None
        return self.n_rot() if is_part else c.need("rotary_dim")


class MiniMaxM3(MiniMaxM2):
    """The text model of MiniMax M3: attention to blocks of tokens that an indexer selects."""

    architecture = "minimax-m3"
    needed = MiniMaxM2.needed | {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
    named_as = "minimax-m2"
    float32 = FLOAT32 | {f"indexer.{part}" for part in ("q_proj", "k_proj")}
    more_names = {
        **{
            f"model.layers.{{}}.{block}.{part}_proj": f"blk.{{}}.ffn_{part}{suffix}"
            for block, suffix in BLOCKS.items()
            for part in ("gate", "up", "down")
        },
        "model.layers.{}.self_attn.index_q_proj": "blk.{}.indexer.q_proj",
        "model.layers.{}.self_attn.index_k_proj": "blk.{}.indexer.k_proj",
        "model.layers.{}.self_attn.index_q_norm": "blk.{}.indexer.q_norm",
        "model.layers.{}.self_attn.index_k_norm": "blk.{}.indexer.k_norm",
    }
    renames = {
        r"\.mlp\.(experts|gate|shared_experts)\.": r".block_sparse_moe.\1.",  # as transformers stores them
        r"\.gate\.e_score_correction": ".e_score_correction",
        r"\.indexer\.(q|k)_": r".index_\1_",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    constants = {"expert_weights_norm": True}
    SPARSE = {
        "head_count": ("sparse_num_index_heads", "index_n_heads"),
        "key_length": ("sparse_index_dim", "index_head_dim"),
        "top_k": ("sparse_topk_blocks", "index_topk_blocks"),
        "block_size": ("sparse_block_size", "index_block_size"),
        "local_blocks": ("sparse_local_block", "index_local_blocks"),
    }
    joined = {
        f"{block}.gate_up_proj": (f"{block}.gate_proj", f"{block}.up_proj") for block in ("mlp", "shared_experts")
    }
    changes = {"norm.weight": lambda norm: norm + 1.0}

    def check_config(self) -> None:
        super().check_config()
        c = self.config
        if c.model_class.startswith("MiniMaxM3VL") and "partial_rotary_factor" not in c.whole_rope:
            raise ConvertError(f"{c.path}: 'partial_rotary_factor' is missing; transformers does not read 'rotary_dim'")

    def metadata(self) -> dict[str, Any]:
        c = self.config | (self.config.first("sparse_attention_config") or {})
        n_dense = leading_dense_layers(c)
        if n_dense is None:
            n_dense = len(list(takewhile(lambda frequency: frequency == 0, c["moe_layer_freq"])))
        kinds = [kind == "minimax_m3_sparse" for kind in c.first("layer_types") or ()]
        is_told = kinds or "sparse_attention_config" not in c
        if is_told and kinds != [i >= n_dense for i in range(self.n_layer)]:
            raise c.unsupported("layer_types", "sparse attention in the layers with experts")
        return super().metadata() | {
            **{f"attention.indexer.{key}": c.need(*names) for key, names in self.SPARSE.items()},
            "expert_shared_count": c.first("n_shared_experts") or 1,
            "leading_dense_block_count": n_dense,
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from packed_experts(self, name, tensor)
