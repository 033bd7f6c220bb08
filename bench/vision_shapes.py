"""Image encoders of published shapes with random weights, and small language models for them, for compare_vision.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import pumice
from pumice.config import load_config
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, block_size
from pumice.gguf.copy import encoded_metadata
from pumice.gguf.writer import Writer
from pumice.registry import get_registry

WIDTH = 2048  # of the language models
TEXT_LAYERS = 2
ROW_ENDS = ("[IMG_BREAK]", "[IMG_END]")  # tokens around rows of Pixtral's images
CONTROL = 3  # type of a token
N_FF, HEAD_DIM, N_HEAD, N_HEAD_KV = 8192, 64, 32, 8  # of Llama 3.2 1B


@dataclass(frozen=True)
class EncoderShape:
    """The shape of a published image encoder.

    Attributes:
        projector: its type.
        about: the models that have it.
        n_patches: of a square picture of 1,024 pixels a side.
        widths: of rows, of the feed-forward's hidden values, and of patches.
        n_layer, n_head: blocks, and heads of each.
        keys: further metadata.
        tensors: shapes of tensors beside those of the blocks.
        gated: the feed-forward has a gate, norms have no bias, and neither have products.
        server_options: options of llama-server by which it sees the picture in the same size.
    """

    projector: str
    about: str
    n_patches: int
    widths: tuple[int, int, int]
    n_layer: int
    n_head: int
    keys: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    gated: bool = False
    server_options: list[str] = field(default_factory=list)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield names and shapes of all tensors."""
        yield from self.tensors.items()
        n, n_ff, _ = self.widths
        products = {"attn_q": (n, n), "attn_k": (n, n), "attn_v": (n, n), "attn_out": (n, n)}
        products |= {"ffn_up": (n_ff, n), "ffn_down": (n, n_ff)} | ({"ffn_gate": (n_ff, n)} if self.gated else {})
        for i in range(self.n_layer):
            for name, shape in products.items():
                yield f"v.blk.{i}.{name}.weight", shape
            for name in ("ln1", "ln2"):
                yield f"v.blk.{i}.{name}.weight", (n,)
            if not self.gated:
                for name, shape in {**products, "ln1": (n,), "ln2": (n,)}.items():
                    yield f"v.blk.{i}.{name}.bias", shape[:1]


SHAPES = {
    "pixtral": EncoderShape(
        "pixtral",
        "Pixtral 12B: 400 million parameters, 24 blocks of 1,024 values, patches of 16 pixels",
        4096,
        (1024, 4096, 16),
        24,
        16,
        {"image_size": 1024, "attention.layer_norm_epsilon": 1e-5, "clip.use_silu": True},
        {
            "v.patch_embd.weight": (1024, 3, 16, 16),
            "v.pre_ln.weight": (1024,),
            "v.token_embd.img_break": (WIDTH,),
            "mm.1.weight": (WIDTH, 1024),
            "mm.1.bias": (WIDTH,),
            "mm.2.weight": (WIDTH, WIDTH),
            "mm.2.bias": (WIDTH,),
        },
        gated=True,
        server_options=["--image-max-tokens", "4096"],
    ),
    "gemma3": EncoderShape(
        "gemma3",
        "Gemma 3 (SigLIP so400m): 400 million parameters, 27 blocks of 1,152 values, patches of 14 of 896 pixels",
        4096,
        (1152, 4304, 14),
        27,
        16,
        {"image_size": 896, "attention.layer_norm_epsilon": 1e-6, "clip.use_gelu": True},
        {
            "v.patch_embd.weight": (1152, 3, 14, 14),
            "v.patch_embd.bias": (1152,),
            "v.position_embd.weight": (4096, 1152),
            "v.post_ln.weight": (1152,),
            "v.post_ln.bias": (1152,),
            "mm.input_projection.weight": (1152, WIDTH),
            "mm.soft_emb_norm.weight": (1152,),
        },
    ),
}


def write_projector(path: Path, shape: EncoderShape, type_name: str) -> Path:
    """Write a projector file whose matrices have a type; rows that its blocks do not divide are F16."""
    n, n_ff, patch = shape.widths
    keys: dict[str, Any] = {
        "patch_size": patch,
        "embedding_length": n,
        "feed_forward_length": n_ff,
        "block_count": shape.n_layer,
        "attention.head_count": shape.n_head,
        "projection_dim": WIDTH,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        **shape.keys,
    }
    metadata: dict[str, Any] = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": shape.projector,
        **{key if key.startswith("clip.") else f"clip.vision.{key}": value for key, value in keys.items()},
    }
    _write(path, metadata, dict(shape.shapes()), GGMLType[type_name])
    return path


def write_text_model(path: Path, type_name: str = "Q8_0", n_layer: int = TEXT_LAYERS) -> Path:
    """Write a language model with the demo model's tokenizer and layers of the shape of Llama 3.2 1B."""
    with GGUFFile.open(pumice.demo_model_path()) as file:
        metadata: dict[str, Any] = encoded_metadata(file.metadata)
        tokens = [*file.metadata["tokenizer.ggml.tokens"], *ROW_ENDS]
        types = [*file.metadata["tokenizer.ggml.token_type"], *(CONTROL for _ in ROW_ENDS)]
    keys = {
        "vocab_size": len(tokens),
        "context_length": 32768,
        "embedding_length": WIDTH,
        "block_count": n_layer,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_HEAD_KV,
        "rope.dimension_count": HEAD_DIM,
    }
    metadata |= {f"llama.{key}": value for key, value in keys.items()}
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": np.array(types, np.int32)}
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,)}
    for i in range(n_layer):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in _text_layer().items()}
    _write(path, metadata, shapes, GGMLType[type_name])
    return path


def _text_layer() -> dict[str, tuple[int, ...]]:
    n_kv = N_HEAD_KV * HEAD_DIM
    attention = {"attn_q": (WIDTH, WIDTH), "attn_k": (n_kv, WIDTH), "attn_v": (n_kv, WIDTH)}
    rest = {"attn_output": (WIDTH, WIDTH), "ffn_gate": (N_FF, WIDTH), "ffn_up": (N_FF, WIDTH)}
    return {**attention, **rest, "ffn_down": (WIDTH, N_FF), "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}


def _write(path: Path, metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]], type: GGMLType) -> None:
    """Write tensors of random weights: matrices of a type, tables of positions and vectors as F32, kernels as F16."""
    random, quantizers = np.random.default_rng(0), get_registry(load_config()).quantizers
    infos = [TensorInfo(name, _stored_type(name, shape, type), shape) for name, shape in shapes.items()]
    with Writer(path, metadata, infos) as writer:
        for info in infos:
            rows = random.standard_normal((info.shape[0], int(np.prod(info.shape[1:]))), np.float32)
            if len(info.shape) == 1:
                values = (0.0 if info.name.endswith("bias") else 1.0) + 0.02 * rows
            else:
                values = rows * rows.shape[1] ** -0.5
            if block_size(info.type) > 1:
                writer.write(quantizers[info.type.name].quantize(values, None))
            else:
                writer.write(values.astype(np.float32 if info.type == GGMLType.F32 else np.float16))


def _stored_type(name: str, shape: tuple[int, ...], type: GGMLType) -> GGMLType:
    if len(shape) == 1 or "position" in name:
        return GGMLType.F32
    if len(shape) > 2 or shape[-1] % block_size(type) or "input_projection" in name:
        return GGMLType.F16
    return type
