"""GPT 2 and its descendants, with fused queries, keys and values in a layout per family."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, LazyTensor, concatenate, in_layers, layer_of, number, stack


class GPT2(Conversion):
    """GPT 2: matrices are transposed."""

    architecture = "gpt2"
    hidden_act = "gelu_new"
    pre_tokenizers = ["gpt-2"]
    computed = {"feed_forward_length": lambda self: 4 * self.config.need("n_embd")}
    changes = dict.fromkeys((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"), LazyTensor.transpose)


class RuGPT3XL(Conversion):
    """ruGPT-3 XL: GPT 2 with separate queries, keys and values."""

    architecture = "gpt2"
    hidden_act = "gelu_new"
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
    hidden_act = "gelu"
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
    hidden_act = "gelu"
    needed = {"alibi": False}
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
    hidden_act = "gelu_pytorch_tanh"
    pre_tokenizers = ["starcoder"]
    integers = {"attention.sliding_window": "sliding_window"}


class StarCoder(Conversion):
    """StarCoder 1: one key and value head."""

    architecture = "starcoder"
    hidden_act = "gelu_pytorch_tanh"
    pre_tokenizers = ["starcoder"]
    constants = {"attention.head_count_kv": 1}
    computed = {"feed_forward_length": lambda self: 4 * self.config.need("n_embd")}


class Bloom(Conversion):
    """BLOOM: query, key and value interleaved by head; linear distance biases (ALiBi)."""

    architecture = "bloom"
    needed = {"apply_residual_connection_post_layernorm": False}
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
    hidden_act = "gelu_pytorch_tanh"
    pre_tokenizers = ["codeshell", "gpt-2"]
    integers = {"attention.head_count_kv": "num_query_groups"}
    constants = {"rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 1.0}
    computed = {"feed_forward_length": lambda self: 4 * self.config.need("n_embd")}


class Refact(Conversion):
    """Refact: one key and value head; gate and up in one matrix."""

    architecture = "refact"
    hidden_act = ""
    pre_tokenizers = ["refact"]
    numbers = {"attention.layer_norm_rms_epsilon": "layer_norm_epsilon"}
    without = ("attention.layer_norm_epsilon", "rope.")
    constants = {"attention.head_count_kv": 1}
    computed = {"feed_forward_length": lambda self: self.n_ff}

    @property
    def n_ff(self) -> int:
        return -(-int(2 * 4 * self.config.need("n_embd") / 3) // 256) * 256

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
    changes = {**GPT2.changes, ".c_fc2.weight": LazyTensor.transpose}
    SLOPES = "relative_pe.slopes"
    unused = (".attn.bias", SLOPES)

    def metadata(self) -> dict[str, Any]:
        n_head, slope = self.config.need("n_head"), None
        slopes = next((tensor for name, tensor in self.folder.tensors.items() if name.endswith(self.SLOPES)), None)
        if slopes is not None:
            slope = float(slopes.read().flat[0])
        bias = -round(math.log2(slope) * 2 ** math.floor(math.log2(n_head))) if slope else 8
        return super().metadata() | {"attention.max_alibi_bias": float(bias)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c = self.config
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
    hidden_act = "relu2"
    pre_tokenizers = ["jais-2"]
    computed = {"rope.dimension_count": lambda self: self.head_dim}


class GPTJ(Conversion):
    """GPT-J."""

    architecture = "gptj"
    hidden_act = "gelu_new"
    named_as = "codeshell"
    pre_tokenizers = ["gpt-2"]
    integers = {"rope.dimension_count": "rotary_dim"}
    defaults = {"rope.freq_base": 10000.0}
    more_names = in_layers("transformer.h.{}.", "blk.{}.", {
        "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v", "attn.out_proj": "attn_output",
        "mlp.fc_in": "ffn_up", "mlp.fc_out": "ffn_down",
    })  # fmt: skip

    def metadata(self) -> dict[str, Any]:
        return {"feed_forward_length": 4 * self.config.need("n_embd")} | super().metadata()


class CodeGen(GPTJ):
    """CodeGen: a GPT-J whose queries, values and keys lie in four shards."""

    N_SHARDS = 4

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        before, separator, _ = name.partition(".qkv_proj.")
        if not separator:
            yield from super().convert(name, tensor)
            return
        shards = tensor.reshape(self.N_SHARDS, 3, -1, tensor.shape[-1])
        for i, part in enumerate("qvk"):
            rows = shards[:, i].reshape(-1, tensor.shape[-1])
            yield from super().convert(f"{before}.{part}_proj.weight", rows)


class GPTNeo(Conversion):
    """GPT-Neo."""

    architecture = "gpt-neo"
    hidden_act = "gelu_new"
    named_as = "gpt2"
    pre_tokenizers = ["gpt-2"]
    integers = {"attention.sliding_window": "window_size"}
    more_names = in_layers("transformer.h.{}.", "blk.{}.", {
        "attn.attention.q_proj": "attn_q", "attn.attention.k_proj": "attn_k", "attn.attention.v_proj": "attn_v",
        "attn.attention.out_proj": "attn_output",
    })  # fmt: skip

    def metadata(self) -> dict[str, Any]:
        c = self.config
        layers = c.first("attention_layers")
        if layers is None:
            layers = [kind for kinds, n in c["attention_types"] for kind in kinds * n]
        return (
            {"feed_forward_length": 4 * c.need("hidden_size")}
            | super().metadata()
            | {
                "attention.head_count": c.need("num_heads"),
                "attention.sliding_window_pattern": [kind == "local" for kind in layers],
            }
        )


class OPT(Conversion):
    """OPT. The first two rows of its positions are for padding."""

    architecture = "opt"
    hidden_act = "relu"
    named_as = "gpt2"
    pre_tokenizers = ["gpt-2"]
    renames = {r"^model\.decoder\.|^decoder\.|^biogpt\.|^model\.": "transformer."}
    integers = {
        "feed_forward_length": ("ffn_dim", "intermediate_size"),
        "embedding_length_tokens": "word_embed_proj_dim",
    }
    defaults = {"attention.layer_norm_epsilon": 1e-5}
    more_names = {
        "transformer.embed_tokens": "token_embd",
        "transformer.embed_positions": "position_embd",
        "transformer.project_in": "token_embd_in",
        "transformer.project_out": "token_embd_out",
        "transformer.final_layer_norm": "output_norm",
        "transformer.layer_norm": "output_norm",
        **in_layers("transformer.layers.{}.", "blk.{}.", {
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.out_proj": "attn_output", "self_attn_layer_norm": "attn_norm", "final_layer_norm": "ffn_norm",
            "fc1": "ffn_up", "fc2": "ffn_down",
        }),
        "output_projection": "output",
    }  # fmt: skip
    computed = {"late_norms": lambda self: self.config.first("do_layer_norm_before") is False}
    changes = {"embed_positions.weight": lambda table: table[2:]}


class BioGPT(OPT):
    """BioGPT."""

    architecture = "biogpt"
    hidden_act = "gelu"
    constants = {"attention.layer_norm_epsilon": 1e-5}
    flags = {"embedding_scaled": "scale_embedding"}


class XGLM(BioGPT):
    """XGLM: a BioGPT whose positions are sinusoids."""

    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = OPT.integers | {"embedding_length": "d_model", "attention.head_count": "attention_heads"}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        n, width = self.config.need("max_position_embeddings"), self.config.need("d_model")
        yield "position_embd.weight", LazyTensor.of(sinusoids(n + 2, width)[2:])


def sinusoids(n: int, width: int) -> np.ndarray:
    """Return the positions ``[n, width]`` of Vaswani et al. 2017 (arXiv:1706.03762), first all sines, then cosines."""
    half = width // 2
    angles = np.arange(n)[:, None] * np.exp(np.arange(half) * (-math.log(10000) / (half - 1)))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class Persimmon(Conversion):
    """Persimmon: query, key and value are interleaved by head."""

    architecture = "persimmon"
    hidden_act = "relu2"
    named_as = "gptneox"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    integers = {"vocab_size": "vocab_size"}
    more_names = {
        "model.embed_tokens": "token_embd",
        "model.final_layernorm": "output_norm",
        **in_layers("model.layers.{}.", "blk.{}.", {
            "self_attn.query_key_value": "attn_qkv", "self_attn.dense": "attn_output",
            "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
            "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        }),
        "lm_head": "output",
    }  # fmt: skip
    computed = {"rope.dimension_count": lambda self: self.n_rot(0.5)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".query_key_value." in name:
            tensor = by_part(tensor, self.config.need("num_attention_heads"))
        yield from super().convert(name, tensor)
