"""Qwen4-Exp: residual streams, a block indexer, and an n-gram embedding table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import ConvertError, LazyTensor, concatenate, layer_of
from pumice_architectures.conversions.qwen_next import Qwen35MoE

STREAMS = {
    "hc_norm": "norm",
    "input_mix_weight_down": "down",
    "input_mix_weight_up": "up",
    "block_inject_weight": "inject",
}
NGRAM_NORMS = ("norm_key", "norm_query", "norm_conv")
NGRAMS = {name: name for name in NGRAM_NORMS} | {"key_proj": "key", "value_proj": "value", "conv1d": "conv1d"}
HASH = {  # parameters of the n-gram hash, stored as tensors
    "layer_multipliers": "ple.layer_multipliers",
    "ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
    "ngram_heads_offsets": "ple.head_offsets",
}
SHARD = ".ple_embedding.ngram_embedding.shard_"


class Qwen4Exp(Qwen35MoE):
    """The text model of Qwen4-Exp."""

    architecture = "qwen4exp"
    needed = {"attention_bias": False, "norm_topk_prob": True}
    named_as = "qwen35moe"
    dropped = ("mtp",)
    unused = (".ple_embedding.",)
    integers = Qwen35MoE.integers | {
        "hyper_connection.count": "hc_count",
        "hyper_connection.low_rank": "hc_lowrank",
        "attention.indexer.head_count": "indexer_n_heads",
        "attention.indexer.key_length": "indexer_head_dim",
        "attention.indexer.top_k": "indexer_budget",
    }
    more_names = {
        **{f"model.hyper_connection_mixer.{old}": f"output_hc_{new}" for old, new in STREAMS.items()},
        **{f"model.layers.{{}}.attn_hyper_connection.{old}": f"blk.{{}}.hc_attn_{new}" for old, new in STREAMS.items()},
        **{f"model.layers.{{}}.mlp_hyper_connection.{old}": f"blk.{{}}.hc_ffn_{new}" for old, new in STREAMS.items()},
        **{f"model.layers.{{}}.ple.{old}": f"blk.{{}}.ple_{new}" for old, new in NGRAMS.items()},
        **{f"model.layers.{{}}.self_attn.indexer.{x}_layernorm": f"blk.{{}}.indexer.{x}_norm" for x in "qk"},
    }

    @property
    def n_draft(self) -> int:
        return 0

    def metadata(self) -> dict[str, Any]:
        c = self.config
        key = "hidden_act" if c.first("output_gate_type") is None else "output_gate_type"
        if c.get(key) != "sigmoid":
            raise c.unsupported(key, "'sigmoid'")
        metadata, size = super().metadata(), c.need("indexer_compress_ratio")
        metadata["attention.compress_ratios"] = [
            0 if is_recurrent else size for is_recurrent in metadata["attention.recurrent_layers"]
        ]
        return metadata | (self._ngrams() if c.first("ple_layer_ids") else {})

    def _ngrams(self) -> dict[str, Any]:
        c = self.config
        end, image = c.first("eos_token_id"), c.first("image_token_id")
        metadata = {
            "ple.layers": [number - 1 for number in c["ple_layer_ids"]],
            "ple.ngram_size": c.need("ngram_size"),
            "ple.heads_per_ngram": c.need("heads_per_ngram"),
            "ple.conv_kernel": c.need("ple_conv_kernel_size"),
            "ple.eos_token_id": end[0] if isinstance(end, list) else c.need("eos_token_id", least=0),
            "embedding_length_per_layer_input": self._table()[0].shape[-1],
        }
        for name, tensor in self.folder.tensors.items():
            if key := HASH.get(name.rsplit(".ple_embedding.")[-1]):
                metadata[key] = np.asarray(tensor.read(), np.uint64)
        return metadata | ({} if image is None else {"ple.image_token_id": image})

    def _table(self) -> list[LazyTensor]:
        """Return the parts of the n-gram table in order."""
        parts = {
            int(name.split(SHARD)[1].split(".")[0]): tensor
            for name, tensor in self.folder.tensors.items()
            if SHARD in name
        }
        n_parts = self.config.need("split_ngram_parts")
        if len(parts) != n_parts or sorted(parts) != list(range(n_parts)):
            raise ConvertError(
                f"{self.folder.path}: 'ngram_embedding' must have {n_parts} parts, but {len(parts)} are present"
            )
        return [parts[i] for i in range(n_parts)]

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        if self.config.first("ple_layer_ids"):
            yield "per_layer_token_embd.weight", concatenate(self._table())

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("indexer.index_qk_proj.weight"):
            n_queries = self.config.need("indexer_n_heads") * self.config.need("indexer_head_dim")
            for part, rows in zip("qk", tensor.split(n_queries, tensor.shape[0] - n_queries), strict=True):
                yield f"blk.{layer_of(name)}.indexer.{part}_proj.weight", rows
            return
        if name.endswith(tuple(f".ple.{norm}.weight" for norm in NGRAM_NORMS)):
            tensor = tensor + 1.0
        yield from super().convert(name, tensor)
