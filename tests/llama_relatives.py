"""Tiny models of llama's relatives with random quantized weights, of shapes that a token in one dispatch can have."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gguf_files import byte_tokenizer, write_gguf
from pumice.gguf import GGMLType
from quantizers import quantize


@dataclass(frozen=True)
class Relative:
    """An architecture with its sizes; ``keys`` are metadata without the architecture's prefix.

    ``four`` is the type of most matrices, ``others`` that of some by the name of their tensor, with a layer's number
    before it, or in the layers where files named _M have more bits, of two the second one; ``biases`` and
    ``head_norms`` are those of queries, keys and values.
    """

    architecture: str
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    dim: int = 64
    ffn: int = 512
    layers: int = 2
    vocabulary: int = 300
    experts: int = 0
    used: int = 2
    expert_ffn: int = 256
    biases: bool = False
    head_norms: bool = False
    tied: bool = False
    post_norms: bool = False
    joined: bool = False  # queries, keys and values are one matrix, and gate and up
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
        return {"general.architecture": self.architecture, **byte_tokenizer(self.vocabulary), **named}

    def matrices(self) -> dict[str, tuple[int, ...]]:
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
        if not self.experts:
            return {**shapes, **_gated(self.ffn, self.width, "")}
        shapes["ffn_gate_inp"] = (self.experts, self.width)
        gated = _gated(self.expert_ffn, self.width, "_exps")
        return {**shapes, **{name: (self.experts, *shape) for name, shape in gated.items()}}

    def takes_more(self, layer: int) -> bool:
        """Return True for the first and last eighth of the layers, and each third one between."""
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2

    def write(self, path: Path, seed: int = 1, most_rows: int = 1 << 30) -> Path:
        """Write the model; ``most_rows``: rows of a matrix that are drawn; others repeat them."""
        rng = np.random.default_rng(seed)
        tensors: dict[str, np.ndarray] = {"output_norm.weight": np.ones(self.width, np.float32)}
        types: dict[str, GGMLType] = {}

        def add(name: str, size: tuple[int, ...], type: GGMLType) -> None:
            n_rows, n_columns = math.prod(size[:-1]), size[-1]
            drawn = rng.standard_normal((min(n_rows, most_rows), n_columns))
            numbers = (drawn * n_columns**-0.5).astype(np.float32)
            if type != GGMLType.F32:
                types[name] = type
                numbers = quantize(numbers, type)
            tensors[name] = np.resize(numbers, (n_rows, numbers.shape[1])).reshape(*size[:-1], -1)

        def vector(name: str, n: int, low: float = 0.5, high: float = 1.5) -> None:
            tensors[name] = rng.uniform(low, high, n).astype(np.float32)

        head = self.others.get("output", self.four)
        add("token_embd.weight", (self.vocabulary, self.width), head if self.tied else GGMLType.F32)
        if not self.tied:
            add("output.weight", (self.vocabulary, self.width), head)
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            for name in ("attn_norm", "ffn_norm"):
                vector(f"{blk}{name}.weight", self.width)
            if self.post_norms:
                for name in ("post_attention_norm", "post_ffw_norm"):
                    vector(f"{blk}{name}.weight", self.width)
            for name, size in self.matrices().items():
                usual = self.others.get(name, self.four) if self.takes_more(layer) else self.four
                type = GGMLType.F32 if name == "ffn_gate_inp" else self.others.get(f"{layer}.{name}", usual)
                add(f"{blk}{name}.weight", size, type)
                if self.biases and name in ("attn_q", "attn_k", "attn_v"):
                    vector(f"{blk}{name}.bias", size[0], -0.5, 0.5)
            if self.head_norms:
                for name in ("attn_q_norm", "attn_k_norm"):
                    vector(f"{blk}{name}.weight", self.dim)
        return write_gguf(path, self.metadata(), tensors, types)


def _gated(ffn: int, width: int, suffix: str) -> dict[str, tuple[int, ...]]:
    shapes = {"gate": (ffn, width), "up": (ffn, width), "down": (width, ffn)}
    return {f"ffn_{name}{suffix}": shape for name, shape in shapes.items()}


_SCALES = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.1, "logit_scale": 8.0}
MIXED = MappingProxyType({"output": GGMLType.Q6_K, "attn_v": GGMLType.Q6_K, "ffn_down": GGMLType.Q6_K})
_MIXED_EXPERTS = MappingProxyType({**MIXED, "ffn_down_exps": GGMLType.Q6_K})

RELATIVES = {
    "llama": Relative("llama", others=MIXED), "granite": Relative("granite", tied=True, others=MIXED, keys=_SCALES),
    "qwen2": Relative("qwen2", width=512, heads=8, kv_heads=4, biases=True, others=MIXED),
    "qwen3": Relative("qwen3", head_norms=True, four=GGMLType.Q4_0),
    "phi3": Relative("phi3", joined=True, others=MappingProxyType({"output": GGMLType.Q6_K})),
    "gemma": Relative("gemma", tied=True, others=MIXED),
    "granitemoe": Relative(
        "granitemoe", experts=10, used=2, expert_ffn=256, tied=True, others=_MIXED_EXPERTS, keys=_SCALES,
    ),
}  # fmt: skip

GEMMA2 = Relative("gemma2", post_norms=True, tied=True, others=MIXED)
GEMMA3 = replace(GEMMA2, architecture="gemma3", layers=7, head_norms=True, keys={"rope.freq_base": 1e6})


CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0, "attention.sliding_window": 10}

# In the shapes of published models, but with two layers.
PUBLISHED = {
    "granite_8b_q4_k_m": Relative(
        "granite", width=4096, heads=32, kv_heads=8, dim=128, ffn=12800, tied=True, others=MIXED, keys=_SCALES,
    ),
    "gemma2_9b_q4_k_m": replace(
        GEMMA2, width=3584, heads=16, kv_heads=8, dim=256, ffn=14336,
        keys={"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 4096},
    ),
    "gemma3_12b_q4_k_m": replace(
        GEMMA3, width=3840, heads=16, kv_heads=8, dim=256, ffn=15360,
        keys={**GEMMA3.keys, "attention.sliding_window": 1024},
    ),
    "llama_3b_q4_k_m": Relative(
        "llama", width=3072, heads=24, kv_heads=8, dim=128, ffn=8192, tied=True, others=MIXED,
    ),
}  # fmt: skip
PUBLISHED_EXPERTS = {
    "moe_a3b_12_q4_k_m": Relative(
        "qwen3moe", width=2048, heads=32, kv_heads=4, dim=128, experts=128, used=8, expert_ffn=768, head_norms=True,
        others=_MIXED_EXPERTS, keys={"context_length": 16384},
    ),
    "granitemoe_3b_q4_k_m": replace(
        RELATIVES["granitemoe"], width=1536, heads=24, kv_heads=8, experts=40, used=8, expert_ffn=512,
        keys={**_SCALES, "context_length": 16384},
    ),
}  # fmt: skip
COMPLETE = {
    "granite_8b_q4_k_m": (40, 49155),
    "gemma2_9b_q4_k_m": (42, 256000),
    "gemma3_12b_q4_k_m": (48, 262208),
    "llama_3b_q4_k_m": (28, 128256),
    "moe_a3b_12_q4_k_m": (12, 151936),
    "granitemoe_3b_q4_k_m": (32, 49155),
}
"""Layers and vocabulary of the published models; of Qwen 3 30B-A3B a quarter of its layers."""
