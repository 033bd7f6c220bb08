"""Tiny models of every architecture, with weights that any machine computes alike.

Their files are written when a test needs them; what is kept in ``fixtures/tiny_logits.npz`` are llama.cpp's
logits for them. ``make_fixtures/tiny_logits.py`` says how those were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from gguf_files import write_gguf

N_VOCAB = 32
N_CTX = 256
IDS = [(7 * i + 3) % N_VOCAB for i in range(24)]

Shapes = dict[str, tuple[int, ...]]


@dataclass
class TinyModel:
    """Metadata without the architecture's prefix, and the shapes of the tensors."""

    architecture: str
    metadata: dict[str, Any]
    shapes: Shapes

    def write(self, path: Path) -> Path:
        metadata = {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}
        metadata |= {"general.architecture": self.architecture, "tokenizer.ggml.model": "no_vocab"}
        return write_gguf(path, metadata, {name: weights(name, shape) for name, shape in self.shapes.items()})


def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that keep activations near 1, chosen by the name."""
    x = uniform(crc32(name.encode()), int(np.prod(shape))).reshape(shape)
    if ("norm" in name and name.endswith("weight")) or name.endswith((".scale", "ssm_d")):
        x = 1 + 0.3 * x
    elif name.endswith((".bias", "sinks.weight")):
        x = 0.3 * x
    elif name.startswith("rope_"):
        x = 2.5 + 1.5 * x
    elif name.endswith("ssm_a"):
        x = -1.5 + x
    elif name != "token_embd.weight":
        x = x * np.sqrt(3 / shape[-1])
    return x.astype(np.float32)


def uniform(seed: int, n: int) -> np.ndarray:
    """``n`` numbers in [-1, 1) by SplitMix64 (Steele et al. 2014), which needs only integers."""
    z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / 2**23 - 1


@dataclass
class Maker:
    """Describes the parts of a model. ``norm_bias`` and ``bias`` say which biases the architecture has."""

    architecture: str
    n_layer: int = 2
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 96
    layer_norm: bool = False
    norm_bias: bool = False
    bias: bool = False
    shapes: Shapes = field(default_factory=dict)

    def tensor(self, name: str, *shape: int, bias: bool = False) -> None:
        self.shapes[f"{name}.weight"] = shape
        if bias:
            self.shapes[f"{name}.bias"] = shape[:-1]

    def norm(self, name: str, *shape: int) -> None:
        self.tensor(name, *(shape or (self.n_embd,)))
        if self.norm_bias and not shape:
            self.shapes[f"{name}.bias"] = (self.n_embd,)

    def attention(
        self, blk: str, *, fused: bool = False, qkv_bias: bool | None = None, n_head_kv: int | None = None
    ) -> None:
        q_dim = self.n_head * self.head_dim
        kv_dim = (n_head_kv or self.n_head_kv) * self.head_dim
        qkv_bias = self.bias if qkv_bias is None else qkv_bias
        if fused:
            self.tensor(f"{blk}attn_qkv", q_dim + 2 * kv_dim, self.n_embd, bias=qkv_bias)
        else:
            for name, size in (("attn_q", q_dim), ("attn_k", kv_dim), ("attn_v", kv_dim)):
                self.tensor(blk + name, size, self.n_embd, bias=qkv_bias)
        self.tensor(f"{blk}attn_output", self.n_embd, q_dim, bias=self.bias)

    def qk_norms(self, blk: str, *shapes: tuple[int, ...]) -> None:
        q, k = shapes or ((self.head_dim,), (self.head_dim,))
        self.norm(f"{blk}attn_q_norm", *q)
        self.norm(f"{blk}attn_k_norm", *k)

    def feed_forward(self, blk: str, *, gate: bool = True, suffix: str = "", n_ff: int | None = None) -> None:
        n_ff = n_ff or self.n_ff
        for name in ("ffn_gate", "ffn_up") if gate else ("ffn_up",):
            self.tensor(blk + name + suffix, n_ff, self.n_embd, bias=self.bias)
        self.tensor(f"{blk}ffn_down{suffix}", self.n_embd, n_ff, bias=self.bias)

    def experts(self, blk: str, *, bias: bool = False, scale: bool = False, n_expert: int = 4) -> None:
        self.tensor(f"{blk}ffn_gate_inp", n_expert, self.n_embd, bias=bias)
        for name in ("ffn_gate_exps", "ffn_up_exps"):
            self.tensor(blk + name, n_expert, self.n_ff, self.n_embd, bias=bias)
        self.tensor(f"{blk}ffn_down_exps", n_expert, self.n_embd, self.n_ff, bias=bias)
        if scale:
            for name in ("gate", "up", "down"):
                self.shapes[f"{blk}ffn_{name}_exps.scale"] = (n_expert,)

    def model(self, layer: Callable[[str], None], *, tied: bool = False, **metadata: Any) -> TinyModel:
        self.tensor("token_embd", N_VOCAB, self.n_embd)
        self.norm("output_norm")
        if not tied:
            self.tensor("output", N_VOCAB, self.n_embd)
        for i in range(self.n_layer):
            layer(f"blk.{i}.")
        eps = "attention.layer_norm_epsilon" if self.layer_norm else "attention.layer_norm_rms_epsilon"
        common = {
            "vocab_size": N_VOCAB,
            "context_length": N_CTX,
            "block_count": self.n_layer,
            "embedding_length": self.n_embd,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "rope.dimension_count": self.head_dim,
            eps: 1e-5,
        }
        return TinyModel(self.architecture, common | _dotted(metadata), self.shapes)


def _dotted(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``rope__scaling__type`` as an argument's name is the key ``rope.scaling.type``."""
    return {key.replace("__", "."): value for key, value in metadata.items()}


def llama(architecture: str = "llama", n_layer: int = 1, bias: bool = False, **metadata: Any) -> TinyModel:
    """The plainest model, to see what one metadata key does."""
    m = Maker(architecture, n_layer, bias=bias)

    def layer(blk: str) -> None:
        m.norm(f"{blk}attn_norm")
        m.attention(blk)
        m.norm(f"{blk}ffn_norm")
        m.feed_forward(blk)

    return m.model(layer, **metadata)
