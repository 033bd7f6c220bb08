"""Tiny models of llama's relatives with random quantized weights, of shapes that a token in one dispatch can have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gguf_files import byte_tokenizer, write_gguf
from pumice.gguf import GGMLType
from quantizers import quantize

VOCABULARY = 300


@dataclass(frozen=True)
class Relative:
    """An architecture with its sizes; ``keys`` are metadata without the architecture's prefix.

    ``four`` is the type of most matrices, ``others`` that of some by the name of their tensor, in all layers but the
    first; of ``biases`` and ``head_norms`` those of queries, keys and values.
    """

    architecture: str
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    dim: int = 64
    ffn: int = 512
    layers: int = 2
    experts: int = 0
    used: int = 2
    expert_ffn: int = 256
    shared_ffn: int = 0
    shared_gate: bool = False
    routing_bias: bool = False
    dense_layers: int = 0
    biases: bool = False
    head_norms: bool = False
    tied: bool = False
    post_norms: bool = False
    sinks: bool = False  # of heads, and biases of attention's output, the router and the experts
    joined: bool = False  # queries, keys and values are one matrix, and gate and up
    second_norm: str = "ffn_norm"
    four: GGMLType = GGMLType.Q4_K
    others: Mapping[str, GGMLType] = field(default_factory=lambda: MappingProxyType({"output": GGMLType.Q6_K}))
    keys: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def metadata(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "block_count": self.layers,
            "context_length": 256,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.dim,
            "attention.value_length": self.dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": self.dim,
        }
        if self.experts:
            keys |= {
                "expert_count": self.experts,
                "expert_used_count": self.used,
                "expert_feed_forward_length": self.expert_ffn,
            }
        keys |= dict(self.keys)
        named = {f"{self.architecture}.{key}": value for key, value in keys.items()}
        return {"general.architecture": self.architecture, **byte_tokenizer(VOCABULARY), **named}

    def matrices(self, layer: int) -> dict[str, tuple[int, ...]]:
        query, key = self.heads * self.dim, self.kv_heads * self.dim
        if self.joined:
            down = {"attn_output": (self.width, query), "ffn_down": (self.width, self.ffn)}
            return {"attn_qkv": (query + 2 * key, self.width), "ffn_up": (2 * self.ffn, self.width), **down}
        shapes: dict[str, tuple[int, ...]] = {
            "attn_q": (query, self.width),
            "attn_k": (key, self.width),
            "attn_v": (key, self.width),
            "attn_output": (self.width, query),
        }
        if not self.experts or layer < self.dense_layers:
            return {**shapes, **_gated(self.ffn, self.width, "")}
        shapes["ffn_gate_inp"] = (self.experts, self.width)
        shapes |= {name: (self.experts, *shape) for name, shape in _gated(self.expert_ffn, self.width, "_exps").items()}
        return {**shapes, **(_gated(self.shared_ffn, self.width, "_shexp") if self.shared_ffn else {})}

    def write(self, path: Path, seed: int = 1) -> Path:
        rng = np.random.default_rng(seed)
        tensors: dict[str, np.ndarray] = {"output_norm.weight": np.ones(self.width, np.float32)}
        types: dict[str, GGMLType] = {}

        def add(name: str, size: tuple[int, ...], type: GGMLType) -> None:
            numbers = (rng.standard_normal(size) * size[-1] ** -0.5).astype(np.float32)
            if type != GGMLType.F32:
                types[name] = type
                numbers = quantize(numbers.reshape(-1, size[-1]), type).reshape(*size[:-1], -1)
            tensors[name] = numbers

        def vector(name: str, n: int, low: float = 0.5, high: float = 1.5) -> None:
            tensors[name] = rng.uniform(low, high, n).astype(np.float32)

        head = self.others.get("output", self.four)
        add("token_embd.weight", (VOCABULARY, self.width), head if self.tied else GGMLType.F32)
        if not self.tied:
            add("output.weight", (VOCABULARY, self.width), head)
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            for name in ("attn_norm", self.second_norm):
                vector(f"{blk}{name}.weight", self.width)
            if self.post_norms:
                for name in ("post_attention_norm", "post_ffw_norm"):
                    vector(f"{blk}{name}.weight", self.width)
            for name, size in self.matrices(layer).items():
                other = self.others.get(name, self.four) if layer else self.four
                add(f"{blk}{name}.weight", size, GGMLType.F32 if name == "ffn_gate_inp" else other)
                if self.biases and name in ("attn_q", "attn_k", "attn_v"):
                    vector(f"{blk}{name}.bias", size[0], -0.5, 0.5)
                if self.sinks:
                    tensors.setdefault(f"{blk}{name}.bias", rng.uniform(-0.5, 0.5, size[:-1]).astype(np.float32))
            if self.sinks:
                vector(f"{blk}attn_sinks.weight", self.heads, -1, 1)
            if self.head_norms:
                for name in ("attn_q_norm", "attn_k_norm"):
                    vector(f"{blk}{name}.weight", self.dim)
            if self.experts and layer >= self.dense_layers:
                if self.shared_gate:
                    vector(f"{blk}ffn_gate_inp_shexp.weight", self.width, -0.2, 0.2)
                if self.routing_bias:
                    vector(f"{blk}exp_probs_b.bias", self.experts, -2, 2)  # the choice hardly rests on rounding
        return write_gguf(path, self.metadata(), tensors, types)


def _gated(ffn: int, width: int, suffix: str) -> dict[str, tuple[int, ...]]:
    shapes = {"gate": (ffn, width), "up": (ffn, width), "down": (width, ffn)}
    return {f"ffn_{name}{suffix}": shape for name, shape in shapes.items()}


_SCALES = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.1, "logit_scale": 8.0}
_CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0, "attention.sliding_window": 6}
_SIGMOID = {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5}
_MIXED = MappingProxyType({"output": GGMLType.Q6_K, "attn_v": GGMLType.Q6_K, "ffn_down": GGMLType.Q6_K})
_MIXED_EXPERTS = MappingProxyType({**_MIXED, "ffn_down_exps": GGMLType.Q6_K, "ffn_down_shexp": GGMLType.Q6_K})
_EIGHT = MappingProxyType({"attn_k": GGMLType.Q8_0, "attn_v": GGMLType.Q8_0, "attn_output": GGMLType.Q5_K})

RELATIVES = {
    "llama": Relative("llama", others=_MIXED), "granite": Relative("granite", tied=True, others=_MIXED, keys=_SCALES),
    "qwen2": Relative("qwen2", width=512, heads=8, kv_heads=4, biases=True, others=_MIXED),
    "qwen3": Relative("qwen3", head_norms=True, four=GGMLType.Q4_0),
    "phi3": Relative("phi3", joined=True, others=MappingProxyType({"output": GGMLType.Q6_K})),
    "gemma2": Relative("gemma2", post_norms=True, tied=True, others=_MIXED, keys=_CAPS),
    "gemma3": Relative(
        "gemma3", layers=7, post_norms=True, head_norms=True, tied=True, others=_MIXED,
        keys={"attention.sliding_window": 6, "rope.freq_base": 1e6},
    ),
    "mixtral": Relative("llama", experts=8, others=_EIGHT | {"output": GGMLType.Q6_K}),
    "granitemoe": Relative(
        "granitemoe", experts=10, used=4, expert_ffn=256, tied=True, others=_MIXED_EXPERTS, keys=_SCALES,
    ),
    "qwen2moe": Relative(
        "qwen2moe", experts=6, expert_ffn=96, shared_ffn=416, shared_gate=True, biases=True, four=GGMLType.Q4_0,
        keys={"expert_shared_feed_forward_length": 416},
    ),
    "glm4moe": Relative(
        "glm4moe", layers=3, dense_layers=1, ffn=1024, experts=8, shared_ffn=256, routing_bias=True, head_norms=True,
        biases=True, second_norm="post_attention_norm", four=GGMLType.Q4_0,
        keys={"leading_dense_block_count": 1, "expert_shared_count": 1, **_SIGMOID},
    ),
    "gpt-oss": Relative(
        "gpt-oss", experts=6, expert_ffn=96, biases=True, sinks=True, second_norm="post_attention_norm",
        four=GGMLType.MXFP4,
        others=MappingProxyType(dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "output"), GGMLType.Q8_0)),
        keys={"attention.sliding_window": 6},
    ),
    "deepseek": Relative(
        "deepseek", layers=3, dense_layers=1, ffn=768, experts=8, used=3, expert_ffn=96, shared_ffn=192,
        four=GGMLType.Q4_0, others=MappingProxyType({"output": GGMLType.Q6_K, "ffn_down_exps": GGMLType.Q5_0}),
        keys={"leading_dense_block_count": 1, "expert_shared_count": 2},
    ),
}  # fmt: skip
