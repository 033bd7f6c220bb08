"""The projector file of a tiny MiniCPM-V, whose weights follow from the names of its tensors."""

from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import weights
from gguf_files import write_gguf

FIXTURE = Path(__file__).parent / "fixtures" / "minicpmv.npz"
N_LAYER, N_EMBD, N_FF, PATCH, SIZE, SIDE = 2, 32, 48, 8, 64, 10  # SIDE: of the table of positions, in patches
WIDTH, N_QUERIES = 256, 8
PICTURES = ((90, 50), (20, 11), (201, 130), (60, 300))


def shapes() -> dict[str, tuple[int, ...]]:
    linear = {
        **{f"v.blk.{i}.attn_{name}": (N_EMBD, N_EMBD) for i in range(N_LAYER) for name in ("q", "k", "v", "out")},
        **{f"v.blk.{i}.ffn_up": (N_FF, N_EMBD) for i in range(N_LAYER)},
        **{f"v.blk.{i}.ffn_down": (N_EMBD, N_FF) for i in range(N_LAYER)},
        **{f"resampler.attn.{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "out")},
    }
    norms = {f"v.blk.{i}.ln{j}": N_EMBD for i in range(N_LAYER) for j in (1, 2)} | {"v.post_ln": N_EMBD}
    norms |= {f"resampler.ln_{name}": WIDTH for name in ("q", "kv", "post")}
    return {
        "v.patch_embd.weight": (N_EMBD, 3, PATCH, PATCH),
        "v.patch_embd.bias": (N_EMBD,),
        "v.position_embd.weight": (SIDE**2, N_EMBD),
        "resampler.query": (N_QUERIES, WIDTH),
        "resampler.kv.weight": (WIDTH, N_EMBD),
        "resampler.proj.weight": (WIDTH, WIDTH),
        **{f"{name}.weight": shape for name, shape in linear.items()},
        **{f"{name}.bias": shape[:1] for name, shape in linear.items()},
        **{f"{name}.{kind}": (n,) for name, n in norms.items() for kind in ("weight", "bias")},
    }


def tensors() -> dict[str, np.ndarray]:
    return {name: np.asarray(weights(name, shape), np.float32) for name, shape in shapes().items()}


def write_minicpmv(path: Path, **more: Any) -> Path:
    keys = {
        "image_size": SIZE,
        "patch_size": PATCH,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "block_count": N_LAYER,
        "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-6,
        "projection_dim": 0,  # as in published files
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    metadata = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": "resampler",
        "clip.use_gelu": True,
        "clip.minicpmv_version": 3,
        "clip.minicpmv_query_num": N_QUERIES,
        **{f"clip.vision.{name}": value for name, value in keys.items()},
        **more,
    }
    return write_gguf(path, metadata, tensors())
