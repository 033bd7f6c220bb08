"""Tiny models of every architecture, with weights that any machine computes alike.

``tiny_zoo`` describes them. Their files are written when a test needs them; what is kept in ``fixtures/tiny_logits``
are llama.cpp's logits for them. ``make_fixtures/tiny_logits.py`` says how those were made.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from pumice.gguf import GGMLType
from pumice.gguf.writer import TensorInfo, Writer

N_VOCAB = 32
N_CTX = 256
LONG_IDS = [(7 * i + 3) % N_VOCAB for i in range(N_CTX - 56)]
IDS = LONG_IDS[:24]

DIMS = {"n": 64, "h": 4, "g": 2, "d": 16, "f": 96, "E": 4, "V": N_VOCAB, "ctx": N_CTX}
"""Sizes unless a model says otherwise: embedding, heads, key heads, values in a head, feed-forward, experts, ..."""

SHAPES = {
    "token_embd": "V, n", "position_embd": "ctx, n", "output": "V, n", "attn_q": "h*d, n", "attn_k": "g*d, n",
    "attn_v": "g*d, n", "attn_qkv": "(h+2*g)*d, n", "attn_q_norm": "d", "attn_k_norm": "d", "attn_sinks": "h",
    "attn_output": "n, h*d", "ffn_gate": "f, n", "ffn_up": "f, n", "ffn_down": "n, f", "ffn_gate_inp": "E, n",
    "ffn_gate_exps": "E, f, n", "ffn_up_exps": "E, f, n", "ffn_gate_up_exps": "E, 2*f, n", "ffn_down_exps": "E, n, f",
    "exp_probs_b": "E", "ffn_gate_shexp": "f, n", "ffn_up_shexp": "f, n", "ffn_down_shexp": "n, f",
    "rope_freqs": "d//2", "rope_factors_long": "d//2", "rope_factors_short": "d//2",
}  # fmt: skip
"""Shapes of tensors that a model does not give one for; norms have the width of the embedding."""

ENDS, TIED = "token_embd output_norm output", "token_embd output_norm"
ATTENTION = "attn_norm attn_q attn_k attn_v attn_output"
FUSED_ATTENTION = "attn_norm attn_qkv attn_output"
SWIGLU = "ffn_norm ffn_gate ffn_up ffn_down"
EXPERTS = "ffn_norm ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps"
LLAMA = f"{ATTENTION} {SWIGLU}"
SMALL = {"n": 16, "h": 2, "g": 1, "d": 8, "f": 16}
"""Sizes for models of many layers."""
YARN: dict[str, Any] = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 8.0,
    "rope__scaling__original_context_length": 32,
}

STORED = {"float32": GGMLType.F32, "int32": GGMLType.I32, "int64": GGMLType.I64}
Shapes = dict[str, tuple[int, ...]]


@dataclass
class TinyModel:
    """Metadata without the architecture's prefix (keys that begin with ``/`` are whole), and shapes of the tensors."""

    architecture: str
    metadata: dict[str, Any]
    shapes: Shapes
    ids: Sequence[int] = field(default_factory=lambda: IDS)  # whose logits are llama.cpp's

    def keys(self) -> dict[str, Any]:
        """The metadata of its file."""
        return whole_keys(self.architecture, self.metadata)

    def write(self, path: Path) -> Path:
        tensors = {name: weights(name, shape) for name, shape in self.shapes.items()}
        return write_tiny(path, self.architecture, self.metadata, tensors)


def write_tiny(path: Path, architecture: str, metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    infos = [TensorInfo(name, STORED[array.dtype.name], array.shape) for name, array in tensors.items()]
    with Writer(path, whole_keys(architecture, metadata), infos) as writer:
        for array in tensors.values():
            writer.write(array)
    return path


def whole_keys(architecture: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    prefixed = {key[1:] if key[0] == "/" else f"{architecture}.{key}": value for key, value in metadata.items()}
    return {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"} | prefixed


def tiny(
    architecture: str,
    layer: str | Sequence[str],
    ends: str = ENDS,
    *,
    n_layer: int = 2,
    dims: Mapping[str, int] | None = None,
    layer_norm: bool = False,
    ids: Sequence[int] = IDS,
    **keys: Any,
) -> TinyModel:
    """A model whose layers have the tensors that ``layer`` lists, or each those of its own list.

    An entry is ``name`` (``attn_q`` means ``attn_q.weight``), with a point in it the whole name, or ``name!`` for one
    without a suffix; ``name=2*f,n`` gives its shape, in the sizes of ``DIMS`` and ``dims``; a final ``+`` adds a bias.
    ``keys`` are metadata, with ``__`` for a point; None takes away a key that models have by default.
    """
    sizes = DIMS | dict(dims or {})
    layers = [layer] * n_layer if isinstance(layer, str) else layer
    shapes = dict(_tensors(ends, "", sizes))
    for i, names in enumerate(layers):
        shapes |= _tensors(names, f"blk.{i}.", sizes)
    metadata = _common(sizes, len(layers), layer_norm) | {key.replace("__", "."): keys[key] for key in keys}
    return TinyModel(architecture, {key: value for key, value in metadata.items() if value is not None}, shapes, ids)


def _common(sizes: Mapping[str, int], n_layer: int, layer_norm: bool) -> dict[str, Any]:
    return {
        "vocab_size": sizes["V"],
        "context_length": N_CTX,
        "block_count": n_layer,
        "embedding_length": sizes["n"],
        "feed_forward_length": sizes["f"],
        "attention.head_count": sizes["h"],
        "attention.head_count_kv": sizes["g"],
        "attention.key_length": sizes["d"],
        "attention.value_length": sizes["d"],
        "rope.dimension_count": sizes["d"],
        "attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon": 1e-5,
    }


def _tensors(entries: str, prefix: str, sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for entry in entries.split():
        name, _, text = entry.removesuffix("+").partition("=")
        base = name.split(".")[0].removesuffix("!")
        text = text or SHAPES.get(base, "n" if "norm" in base else "")
        shape: tuple[int, ...] = eval(f"({text},)", {}, dict(sizes))
        if "." in name and "=" not in entry:  # a bias or scale without its matrix
            shape = shape[:-1] if name.endswith(".bias") and len(shape) > 1 else shape
            shape = (shape[0] if len(shape) > 2 else 1,) if name.endswith(".scale") else shape
        full = name.removesuffix("!") if name.endswith("!") or "." in name else f"{name}.weight"
        yield prefix + full, shape
        if entry.endswith("+"):
            yield f"{prefix}{name}.bias", shape[:-1] if len(shape) > 1 else shape


def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that keep activations near 1, chosen by the name."""
    if "tid2eid" in name:  # experts of tokens
        return np.add.outer(5 * np.arange(shape[0]), np.arange(shape[1])).astype(np.int32) % DIMS["E"]
    if name == "d2t":  # tokens of a draft in its target's vocabulary
        return 2 * np.arange(shape[0])
    x = uniform(crc32(name.encode()), int(np.prod(shape))).reshape(shape)
    if ("norm" in name and not name.endswith("bias")) or name.endswith((".scale", "ssm_d")):
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
