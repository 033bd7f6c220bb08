"""GPT 2 and its descendants, with fused queries, keys and values in a layout per family."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, concatenate, layer_of, number, stack


class GPT2(Conversion):
    """GPT 2: matrices are transposed."""

    architecture = "gpt2"
    pre_tokenizers = ["gpt-2"]
    TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"feed_forward_length": 4 * self.config.need("n_embd")}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, tensor.transpose() if name.endswith(self.TRANSPOSED) else tensor)


class RuGPT3XL(Conversion):
    """ruGPT-3 XL: GPT 2 with separate queries, keys and values."""

    architecture = "gpt2"
    pre_tokenizers = ["gpt-2"]

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        before, separator, suffix = name.partition(".self_attn.q_proj.")
        if separator:
            stored = {self.rename(stored_name): values for stored_name, values in self.folder.tensors.items()}
            parts = [stored[f"{before}.self_attn.{part}_proj.{suffix}"] for part in "qkv"]
            yield f"blk.{layer_of(name)}.attn_qkv.{suffix}", concatenate(parts)
        elif not any(f".self_attn.{part}_proj." in name for part in "kv"):
            yield from super().convert(name, tensor)


class GPTNeoX(Conversion):
    """GPT-NeoX and Pythia: query, key and value are interleaved by head."""

    architecture = "gptneox"
    pre_tokenizers = ["olmo", "gpt-2"]

    def metadata(self) -> dict[str, Any]:
        head_dim = self.config.need("hidden_size") // self.config.need("num_attention_heads")
        part = float(self.config.rope.get("partial_rotary_factor", 0.25))
        left_out = ("rope.freq_base", "attention.head_count_kv")
        residual = self.config.first("use_parallel_residual")
        return {key: value for key, value in super().metadata().items() if key not in left_out} | {
            "rope.dimension_count": int(part * head_dim),
            "use_parallel_residual": True if residual is None else bool(residual),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "attention.query_key_value." in name:
            tensor = by_part(tensor, self.config.need("num_attention_heads"))
        yield from super().convert(name, tensor)


def by_part(tensor: LazyTensor, n_head: int) -> LazyTensor:
    """Reorder rows from head by head to all queries, all keys, all values."""
    heads = tensor.reshape(n_head, 3, -1, *tensor.shape[1:])
    return concatenate([heads[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3)])


class Falcon(Conversion):
    """Falcon: the queries of a group are followed by its key and its value."""

    architecture = "falcon"
    pre_tokenizers = ["falcon"]

    def metadata(self) -> dict[str, Any]:
        n_embd = self.config.need("hidden_size")
        metadata = {key: value for key, value in super().metadata().items() if not key.startswith("rope.")}
        return metadata | {
            "context_length": 2048,  # missing in configurations
            "tensor_data_layout": "jploski",
            "feed_forward_length": 4 * n_embd,
            "attention.head_count_kv": self._n_head_kv,
        }

    @property
    def _n_head_kv(self) -> int:
        if self.config.get("multi_query") and not self.config.get("new_decoder_architecture"):
            return 1
        return self.config.first("num_kv_heads", "n_head_kv") or 1

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "query_key_value" in name:
            n_group = self.config.need("num_attention_heads", "n_head") // self._n_head_kv
            groups = tensor.reshape(self._n_head_kv, n_group + 2, -1, *tensor.shape[1:])
            parts = (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])
            tensor = concatenate([part.reshape(-1, *tensor.shape[1:]) for part in parts])
        yield from super().convert(name, tensor)


class StableLM(Conversion):
    """StableLM: norms of queries and keys per head."""

    architecture = "stablelm"
    pre_tokenizers = ["stablelm2", "olmo", "gpt-2"]

    def metadata(self) -> dict[str, Any]:
        head_dim = self.config.need("hidden_size") // self.config.need("num_attention_heads")
        part = float(self.config.rope.get("partial_rotary_factor", 0.25))
        metadata = {key: value for key, value in super().metadata().items() if key != "rope.freq_base"}
        residual = self.config.first("use_parallel_residual")
        return metadata | {
            "rope.dimension_count": int(part * head_dim),
            "use_parallel_residual": True if residual is None else bool(residual),
        }

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        norms: dict[str, list[tuple[int, LazyTensor]]] = {}
        for name, tensor in super().tensors():
            base, dot, head = name.removesuffix(".weight").partition("_norm.norms.")
            if dot:
                norms.setdefault(f"{base}_norm.weight", []).append((int(head), tensor))
            else:
                yield name, tensor
        for name, of_heads in norms.items():
            yield name, stack([tensor for _, tensor in sorted(of_heads, key=lambda each: each[0])])

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        before, mark, head = name.partition("_layernorm.norms.")
        if mark:
            whole = self.names(f"{before}_layernorm.weight").removesuffix(".weight")
            yield f"{whole}.norms.{head}", tensor
        else:
            yield from super().convert(name, tensor)


class StarCoder2(Conversion):
    architecture = "starcoder2"
    pre_tokenizers = ["starcoder"]


class StarCoder(Conversion):
    """StarCoder 1: one key and value head."""

    architecture = "starcoder"
    pre_tokenizers = ["starcoder"]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "feed_forward_length": 4 * self.config.need("n_embd"),
            "attention.head_count_kv": 1,
        }


class Bloom(Conversion):
    """BLOOM: query, key and value interleaved by head; linear distance biases (ALiBi)."""

    architecture = "bloom"
    pre_tokenizers = ["bloom", "gpt-2"]
    renames = {r"^transformer\.": ""}

    def metadata(self) -> dict[str, Any]:
        n_embd, n_head = self.config.need("hidden_size", "n_embed"), self.config.need("n_head", "num_attention_heads")
        return {
            "context_length": self.config.first("seq_length") or n_embd,
            "embedding_length": n_embd,
            "feed_forward_length": 4 * n_embd,
            "block_count": self.n_layer,
            "attention.head_count": n_head,
            "attention.head_count_kv": n_head,
            "attention.layer_norm_epsilon": number(self.config, "layer_norm_epsilon"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if "self_attention.query_key_value." in name:
            tensor = by_part(tensor, self.config.need("n_head", "num_attention_heads"))
        yield from super().convert(name, tensor)


class MPT(Conversion):
    """MPT: linear distance biases (ALiBi)."""

    architecture = "mpt"
    vocabularies = ["bpe", "sentencepiece"]
    pre_tokenizers = ["mpt", "olmo", "gpt-2"]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        attention = c.first("attn_config") or {}
        metadata = {
            "context_length": c.need("max_seq_len"),
            "embedding_length": c.need("d_model"),
            "block_count": self.n_layer,
            "feed_forward_length": 4 * c.need("d_model"),
            "attention.head_count": c.need("n_heads"),
            "attention.layer_norm_epsilon": 1e-5,
            "attention.max_alibi_bias": float(attention.get("alibi_bias_max", 8))
            if attention.get("alibi", True)
            else 0.0,
        }
        if attention.get("kv_n_heads"):
            metadata["attention.head_count_kv"] = attention["kv_n_heads"]
        if attention.get("clip_qkv") is not None:
            metadata["attention.clamp_kqv"] = float(attention["clip_qkv"])
        return metadata


class CodeShell(Conversion):
    architecture = "codeshell"
    pre_tokenizers = ["codeshell", "gpt-2"]
    integers = {"attention.head_count_kv": "num_query_groups"}
    constants = {"rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 1.0}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"feed_forward_length": 4 * self.config.need("n_embd")}


class Refact(Conversion):
    """Refact: one key and value head; gate and up in one matrix."""

    architecture = "refact"
    pre_tokenizers = ["refact"]
    numbers = {"attention.layer_norm_rms_epsilon": "layer_norm_epsilon"}
    without = ("attention.layer_norm_epsilon", "rope.")

    @property
    def n_ff(self) -> int:
        return -(-int(2 * 4 * self.config.need("n_embd") / 3) // 256) * 256

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"feed_forward_length": self.n_ff, "attention.head_count_kv": 1}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        layer = f"blk.{layer_of(name)}"
        if name.endswith("attn.kv.weight"):
            keys, values = tensor.halves()
            yield f"{layer}.attn_k.weight", keys
            yield f"{layer}.attn_v.weight", values
        elif name.endswith("attn.q.weight"):
            yield f"{layer}.attn_q.weight", tensor
        elif name.endswith("mlp.gate_up_proj.weight"):
            yield f"{layer}.ffn_gate.weight", tensor[: self.n_ff]
            yield f"{layer}.ffn_up.weight", tensor[self.n_ff :]
        else:
            yield from super().convert(name, tensor)


class Jais(Conversion):
    """Jais: GPT 2 with SwiGLU, ALiBi, and scaled embeddings and logits."""

    architecture = "jais"
    pre_tokenizers = ["jais", "gpt-2"]
    TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight", ".c_fc2.weight")
    SLOPES = "relative_pe.slopes"

    def metadata(self) -> dict[str, Any]:
        n_head, slope = self.config.need("n_head"), None
        slopes = next((tensor for name, tensor in self.folder.tensors.items() if name.endswith(self.SLOPES)), None)
        if slopes is not None:
            slope = float(slopes.read().flat[0])
        bias = -round(math.log2(slope) * 2 ** math.floor(math.log2(n_head))) if slope else 8
        return super().metadata() | {"attention.max_alibi_bias": float(bias)}

    def rename(self, name: str) -> str | None:
        return None if name.endswith((".attn.bias", self.SLOPES)) else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c = self.config
        if name.endswith(self.TRANSPOSED):
            tensor = tensor.transpose()
        new = self.names(name)
        if new == "token_embd.weight":
            tensor = tensor * number(c, "mup_embeddings_scale", "embeddings_scale")
        elif new == "output.weight":
            alpha = c.first("mup_output_alpha")
            scale = number(c, "width_scale") if alpha is None else alpha * number(c, "mup_width_scale")
            tensor = tensor * scale
        yield new, tensor


class Jais2(Conversion):
    architecture = "jais2"
    pre_tokenizers = ["jais-2"]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.head_dim}
