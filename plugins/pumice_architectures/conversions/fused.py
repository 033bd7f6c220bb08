"""Families with queries, keys and values, or gate and up, in one matrix, or with heads in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, Folder, LazyTensor, layer_of
from pumice_architectures.conversions.deepseek import refuse_mscale
from pumice_architectures.conversions.llama import (
    Llama,
    add_space_prefix,
    queries_keys_values,
)
from pumice_architectures.conversions.plain import META_LAYOUT, SPM
from pumice_architectures.conversions.qwen import end_of_turn
from pumice_architectures.conversions.rope_factors import llama3_factors, long_factors


class InternLM2(Conversion):
    """InternLM 2: the queries of a group are followed by its key and its value."""

    architecture = "internlm2"
    vocabularies = SPM

    def other_metadata(self) -> dict[str, Any]:
        return end_of_turn(self, "eos")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "attention.wqkv" in name:
            n_head, n_head_kv = self.config.need("num_attention_heads"), self.config.need("num_key_value_heads")
            groups = tensor.reshape(n_head_kv, n_head // n_head_kv + 2, -1, *tensor.shape[1:])
            parts = [part.reshape(-1, *tensor.shape[1:]) for part in (groups[:, :-2], groups[:, -2], groups[:, -1])]
            yield from queries_keys_values(name, parts, n_head, n_head_kv)
        else:
            yield from super().convert(name, tensor)


class InternLM3(Llama):
    vocabularies = SPM

    def other_metadata(self) -> dict[str, Any]:
        return add_space_prefix(self) | end_of_turn(self, "eos")

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from ()


class Baichuan(Conversion):
    """Baichuan: queries, keys and values are stacked in one matrix."""

    architecture = "baichuan"
    vocabularies = SPM
    constants = META_LAYOUT
    joined = {"W_pack": ("q_proj", "k_proj", "v_proj")}
    interleaves = True
    computed = {
        "rope.dimension_count": lambda self: self.config.need("hidden_size") // self.config.need("num_attention_heads"),
    }


class Xverse(Baichuan):
    architecture = "xverse"


class MiniCPM3(Conversion):
    """MiniCPM 3: latent attention; keys and values are cached uncompressed."""

    architecture = "minicpm3"
    inner_eps = 1e-6
    needed = {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}
    vocabularies = SPM
    without = ("attention.value_length",)
    implied = {"rope.freq_base": 10000.0, "rope.scaling.type": "longrope"}
    integers = {
        "vocab_size": "vocab_size",
        "attention.q_lora_rank": "q_lora_rank",
        "attention.kv_lora_rank": "kv_lora_rank",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_rot = c.need("qk_rope_head_dim")
        refuse_mscale(c)
        made = {"attention.key_length": c.need("qk_nope_head_dim") + n_rot, "rope.dimension_count": n_rot}
        return super().metadata() | made

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from long_factors(self.config.whole_rope)


class OpenELM(Conversion):
    """OpenELM: heads and widths per layer."""

    architecture = "openelm"
    vocabularies = SPM

    def __init__(self, folder: Folder) -> None:
        self.folder, self.config = folder, folder.config
        self.n_layer = self.config.need("num_transformer_layers")

    def _widths(self) -> list[int]:
        divisor, n_embd = self.config.need("ffn_dim_divisor"), self.config.need("model_dim")
        return [_divisible(float(by) * n_embd, divisor) for by in self.config["ffn_multipliers"]]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return {
            "block_count": self.n_layer,
            "context_length": c.need("max_context_length"),
            "embedding_length": c.need("model_dim"),
            "feed_forward_length": self._widths(),
            "attention.head_count": c["num_query_heads"],
            "attention.head_count_kv": c["num_kv_heads"],
            "rope.freq_base": float(c["rope_freq_constant"]),
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": c.need("head_dim"),
            "attention.key_length": c.need("head_dim"),
            "attention.value_length": c.need("head_dim"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("ffn.proj_1.weight"):
            layer = layer_of(name)
            width = self._widths()[layer]
            yield f"blk.{layer}.ffn_gate.weight", tensor[:width]
            yield f"blk.{layer}.ffn_up.weight", tensor[width:]
        else:
            yield from super().convert(name, tensor)


def _divisible(width: float, divisor: int) -> int:
    """Return the nearest multiple of ``divisor`` that is at most 10 % smaller (Mehta et al. 2024, arXiv:2404.14619)."""
    rounded = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * width else rounded


class Deci(Conversion):
    """DeciLM and Nemotron NAS: heads and widths per layer; some layers have no attention."""

    architecture = "deci"
    vocabularies = ["bpe", "fast_sentencepiece"]
    pre_tokenizers = ["llama-bpe"]
    integers = {"vocab_size": "vocab_size"}

    def _blocks(self) -> list[tuple[int, int, int]]:
        """Return heads, key and value heads, and width of each layer."""
        c = self.config
        n_head, n_embd = c.need("num_attention_heads"), c.need("hidden_size")
        blocks = []
        for block in c["block_configs"]:
            group, by = block["attention"]["n_heads_in_group"], block["ffn"]["ffn_mult"] or 0.0
            attends = group is not None or block["attention"]["replace_with_linear"] is True
            width = -(-int(2 * by * n_embd / 3) // 256) * 256
            blocks.append((n_head if attends else 0, n_head // group if group else 0, width))
        return blocks

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata() | {"rope.dimension_count": self.head_dim}
        if c.first("block_configs"):
            n_heads, n_heads_kv, widths = map(list, zip(*self._blocks(), strict=True))
            dim = c.need("hidden_size") // c.need("num_attention_heads")
            metadata |= {
                "attention.head_count": n_heads,
                "attention.head_count_kv": n_heads_kv,
                "feed_forward_length": widths,
                "attention.key_length": dim,
                "attention.value_length": dim,
            }
        elif c.first("num_key_value_heads_per_layer"):
            metadata["attention.head_count_kv"] = c["num_key_value_heads_per_layer"]
        return metadata

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from llama3_factors(self.config.whole_rope, self.head_dim)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = tensor.interleave_rope(tensor.shape[0] // self.head_dim)
        yield from super().convert(name, tensor)
